"""The benchmark: `python -m bench`, or `make bench`.

`__main__` runs suites and keeps what they leave. Each word has a module:

- `suites` lists them and runs one; `scale` says how much is measured;
- `figure` is one measured value with its ratio and target, `circumstances` what it depends on,
  `record` the figures of a scale as they are kept in `records/`;
- `report` turns figures into tables, `readme` puts the comparison into the README;
- `measure` takes the time, `child` runs what needs a process of its own, `progress` talks,
  `durability` sets it, `bulk_write` fills graphs.

A suite is a module with a function `run` that gives figures: `languages` (input from `texts`),
`kernel`, `load` (`trips`, `load_child`), `merge` (`merge_graph`, `merge_child`), `upkeep`, `server`
(`server_load`), and the largest, `queries`: `social` generates a graph, `social_files` keeps what
is made of it, `questions` are put to the engines in `peer_*`, `judges` compare answers, `contest`
takes the time, and `query_processes` measures what needs processes of its own.
"""
