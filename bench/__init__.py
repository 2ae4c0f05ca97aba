"""The benchmark: `python -m bench`, or `make bench`.

A suite is a module with a `run` function that returns figures. `__main__` picks suites and prints,
`record` says what a figure is and where it was measured, `report` shows it, `measure` takes the
time, `texts` makes the input. A new suite is entered in `suites`.

The suite `queries` is the largest: `social` generates a graph and `social_files` keeps what is made
of it, `questions` are put to the engines in `peer_*`, `judges` compare answers, `contest` takes the
time, and `query_processes` measures what needs processes of its own.
"""
