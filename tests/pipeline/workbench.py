"""A folder with a graph, a pipeline file and a session to run it in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.errors import (
    PipelineInvalid,
)
from omnigraph.graph import Graph
from omnigraph.pipeline.files import Pipeline, PipelineReceipt

PEOPLE = "query q { match { $p: Person } return { $p.email, $p.name } order { $p.email } }"

SCHEMA = """
node Person { email: String @key  name: String  age: I32?  tags: [String]? }
node Note { text: String }
edge Knows: Person -> Person { since: Date?  @key(src, dst) }
edge Likes: Person -> Note
"""

SMALL = """\
version: 1
name: small
graph: graph.omni
sources:
  people: {format: csv, path: people.csv, options: {header: true}}
nodes:
  Person: {from: people, map: {email: email, name: name, age: cast(age as int)}}
"""

CHECKED = (
    SMALL
    + """\
target: {branch: ingest, from: main, merge_into: main}
checks:
  - {name: grown-up, file: checks.gq, query: young, expect: empty}
  - {name: some, file: checks.gq, query: all, params: {at_least: 1}, expect: nonempty}
"""
)
CHECKS = """
query young() { match { $p: Person  $p.age < 18 } return { $p.email, $p.age } order { $p.email } }
query all($at_least: I32) { match { $p: Person  $p.age >= $at_least } return { $p.email } }
"""


class Workbench:
    """A folder with a graph and a pipeline file, and the shared session to run it in."""

    def __init__(self, folder: Path, spark: Any) -> None:
        self.folder = folder
        self.graph: Graph = og.init(folder / "graph.omni", SCHEMA)
        self.options = og.SparkOptions(session=spark)

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def people(self, *rows: str, name: str = "people.csv") -> Path:
        return self.write(name, "\n".join(["email,name,age", *rows, ""]))

    def pipeline(self, text: str = SMALL) -> Pipeline:
        return og.read_pipeline(self.write("pipeline.yaml", text))

    def run(self, text: str = SMALL, **options: Any) -> PipelineReceipt:
        return self.pipeline(text).run(spark=self.options, **options)

    def problems(self, text: str) -> list[tuple[str, str, str, str | None]]:
        """Line and column, key, message and hint of each."""
        with pytest.raises(PipelineInvalid) as wrong:
            self.pipeline(text).validate(spark=self.options)
        return [
            (
                each["place"].partition("pipeline.yaml:")[2],
                each["key"],
                each["message"],
                each["hint"],
            )
            for each in wrong.value.details["problems"]
        ]

    def names(self, branch: str = "main") -> list[str]:
        return [row["p.email"] for row in self.graph.query(PEOPLE, branch=branch).to_pylist()]

    def rows(self, type_name: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.graph.table(type_name).to_arrow().to_pylist()
        return found

    def commits(self, branch: str = "main") -> list[str | None]:
        return [commit.kind for commit in self.graph.list_commits(branch)]
