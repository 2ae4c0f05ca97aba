"""A small cluster in a directory, which tests edit as an operator does."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from omnigraph.cluster import Cluster
from omnigraph.cluster.answers import Applied, ClusterAnswer
from omnigraph.cluster.ledger import STATE, Ledger, parse_ledger
from omnigraph.graph import Graph, open_graph

CONFIG = """\
version: 1
metadata: { name: company }
graphs:
  people:
    schema: people.pg
    queries: queries/
  sales: { schema: sales.pg }
policies:
  base: { file: base.yaml, applies_to: [people] }
"""
PEOPLE = "node Person { name: String @key  age: I32? }\n"
SALES = "node Order { number: I64 @key  total: F64? }\n"
QUERIES = """\
query everybody() { match { $p: Person } return { $p.name } order { $p.name } }
"""
POLICY = """\
version: 1
groups: { team: [act-ana, act-bo] }
rules:
  - id: team-reads
    allow: { actors: { group: team }, actions: [read, invoke_query] }
"""
CLUSTER_POLICY = """\
version: 1
groups: { operators: [act-ana] }
rules:
  - id: operators-list
    allow: { actors: { group: operators }, actions: [graph_list] }
"""
ACTOR = "act-ana"


@dataclass
class Fleet:
    """A directory with `cluster.yaml`, and the commands on it."""

    directory: Path

    @property
    def cluster(self) -> Cluster:
        return Cluster(self.directory)

    def write(self, **files: str) -> Fleet:
        """Write files; `people_pg` is `people.pg`, and `queries__a_gq` is `queries/a.gq`."""
        for name, text in files.items():
            stem, _, suffix = name.rpartition("_")
            path = self.directory / f"{stem.replace('__', '/')}.{suffix}"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        return self

    def edit(self, name: str, old: str, new: str) -> None:
        """Replace a text in a file, as an editor does."""
        path = self.directory / name
        text = path.read_text(encoding="utf-8")
        assert old in text
        path.write_text(text.replace(old, new), encoding="utf-8")

    def applied(self, actor: str | None = ACTOR) -> Applied:
        """Apply, which is to leave nothing to do."""
        done = self.cluster.apply(actor=actor)
        assert done.ok, errors(done)
        assert done.converged, done.to_dict()
        return done

    @property
    def storage(self) -> Path:
        return self.directory

    @property
    def state(self) -> Path:
        return self.directory / STATE

    @property
    def ledger(self) -> Ledger:
        return parse_ledger(self.state.read_bytes())

    def edit_ledger(self, change: Callable[[dict[str, Any]], object]) -> None:
        """Change the ledger by hand."""
        document = json.loads(self.state.read_bytes())
        change(document)
        self.state.write_text(json.dumps(document), encoding="utf-8")

    def root(self, graph_id: str) -> Path:
        return self.directory / "graphs" / f"{graph_id}.omni"

    def graph(self, graph_id: str) -> Graph:
        return open_graph(self.root(graph_id))

    @property
    def recoveries(self) -> list[Path]:
        return sorted((self.directory / "__cluster" / "recoveries").glob("*.json"))

    @property
    def approvals(self) -> list[dict[str, Any]]:
        found = sorted((self.directory / "__cluster" / "approvals").glob("*.json"))
        return [json.loads(path.read_bytes()) for path in found]

    @property
    def lock(self) -> Path:
        return self.directory / "__cluster" / "lock.json"


def errors(answer: ClusterAnswer) -> list[str]:
    """The errors of an answer, to be read in a failure."""
    return [str(each) for each in answer.errors]


def error_codes(answer: ClusterAnswer) -> list[str]:
    """The codes of the errors, each once and sorted."""
    return sorted({each.code for each in answer.errors})


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    """The files of a cluster of two graphs, of which nothing was applied."""
    made = Fleet(tmp_path / "fleet")
    return made.write(
        cluster_yaml=CONFIG,
        people_pg=PEOPLE,
        sales_pg=SALES,
        queries__people_gq=QUERIES,
        base_yaml=POLICY,
    )


@pytest.fixture
def imported(fleet: Fleet) -> Fleet:
    """The same with an empty ledger."""
    assert fleet.cluster.import_().ok
    return fleet


@pytest.fixture
def running(imported: Fleet) -> Fleet:
    """The same with everything applied."""
    imported.applied()
    return imported
