"""A process that inserts rows into a graph: ``python -m tests.s3.writer URI NAME COUNT``.

It prints each name once its insert is acknowledged. With failpoints in its environment it may be
killed on the way.
"""

from __future__ import annotations

import sys

from omnigraph.graph import open_graph

INSERT = "query add($name: String) { insert Person { name: $name } }"


def main(uri: str, name: str, count: int) -> None:
    graph = open_graph(uri)
    for n in range(count):
        graph.mutate(INSERT, {"name": f"{name}-{n}"}, actor=name)
        print(f"{name}-{n}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
