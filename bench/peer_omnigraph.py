"""Omnigraph, by `Graph.query`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bench.judges import Parameters
from bench.peers import Answer, Form
from bench.questions import Wording
from omnigraph.graph import Graph, open_graph


class Omnigraph:
    """A graph, opened as any user does."""

    name = "Omnigraph"

    def __init__(self, path: Path) -> None:
        self.graph: Graph = open_graph(path, "read_only")

    def forms(self, question: Wording) -> Sequence[Form]:
        """The one way there is: a text and parameters."""

        def ask(parameters: Parameters) -> Answer:
            return self.graph.query(question.gq, parameters).to_pylist()

        return [ask]

    def close(self) -> None:
        """Nothing is held open."""
