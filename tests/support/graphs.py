"""Small real graphs on local disk for tests of the kernel."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

import omnigraph as og
from omnigraph.commit.kernel import Capture, Kernel
from omnigraph.commit.leases import WriteSettings
from omnigraph.commit.opening import initialize
from omnigraph.commit.plan import ChangeKind, ChangeSet, Intent, TableChange
from omnigraph.commit.recovery import Recoverer
from omnigraph.commit.writer import WriteAttempt
from omnigraph.effects.clock import MINT
from omnigraph.effects.uri import Root
from omnigraph.schema.catalog import Catalog, table_schema
from omnigraph.schema.compile import compile_schema
from omnigraph.storage.manifest import Snapshot
from omnigraph.storage.manifest_rows import CommitRow


def with_edge_ids(records: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Records whose edges have ids: a merge cannot tell edges without id or key apart."""
    return [
        {**each, "data": {"id": MINT.ulid(), **each.get("data", {})}} if "edge" in each else each
        for each in records
    ]


SCHEMA = """
node Person { name: String @key  age: I32? }
node City { name: String @key }
edge Knows: Person -> Person { since: Date? }
"""


@dataclass
class TestGraph:
    """A graph with the kernel opened on it, and the shortest way to write to it."""

    __test__ = False

    kernel: Kernel
    catalog: Catalog

    @property
    def recoverer(self) -> Recoverer:
        return Recoverer(self.kernel)

    def reopened(self, settings: WriteSettings | None = None) -> TestGraph:
        """The same graph through a second kernel, as another handle or process has it."""
        return TestGraph(Kernel.of(self.kernel.root, settings), self.catalog)

    def capture(self, branch: str = "main") -> Capture:
        manifest = self.kernel.manifest.branch(branch)
        manifest.refresh()
        return self.kernel.capture(manifest, self.kernel.accepted_schema().schema_hash)

    def snapshot(self, branch: str = "main") -> Snapshot:
        return self.capture(branch).snapshot

    def attempt(
        self,
        changes: ChangeSet,
        branch: str = "main",
        *,
        expected_head: str | None = None,
        actor: str | None = "act-ana",
    ) -> WriteAttempt:
        intent = Intent("Mutation", "mutation", actor, expected_head)
        return WriteAttempt(self.kernel, self.capture(branch), changes, intent)

    def write(self, changes: ChangeSet, branch: str = "main") -> CommitRow:
        self.recoverer.barrier(branch)
        return self.attempt(changes, branch).run()

    def persons(
        self, *names: str, age: int | None = None, kind: ChangeKind = "upsert"
    ) -> ChangeSet:
        """A change that writes these persons."""
        rows = pa.table(
            [list(names), pa.array([age] * len(names), pa.int32()), list(names)],
            schema=table_schema(self.catalog.nodes["Person"]),
        )
        return ChangeSet({"node:Person": TableChange("node:Person", kind, rows)})

    def persons_and_city(self, person: str, city: str) -> ChangeSet:
        """A change of two tables."""
        rows = pa.table([[city], [city]], schema=table_schema(self.catalog.nodes["City"]))
        tables = self.persons(person).tables
        return ChangeSet({**tables, "node:City": TableChange("node:City", "upsert", rows)})

    def names(self, branch: str = "main", table_key: str = "node:Person") -> list[str]:
        """The ids a branch shows."""
        capture = self.capture(branch)
        return sorted(capture.reader.scan(table_key, ["id"])["id"].to_pylist())

    def assert_no_drift(self, branch: str = "main") -> None:
        """Every table the branch owns stands at its pin."""
        capture = self.capture(branch)
        for entry in capture.snapshot.tables.values():
            if entry.ref == capture.branch.where.ref:
                head = self.kernel.lance.open(capture.reader.where(entry)).version
                assert head == entry.version, entry.table_key


def with_settings(graph: og.Graph, **settings: int) -> og.Graph:
    """A handle of the same graph with other `WriteSettings`."""
    kernel = graph._kernel
    return og.Graph(replace(kernel, settings=replace(kernel.settings, **settings)))


def new_graph(
    directory: Path, schema: str = SCHEMA, settings: WriteSettings | None = None
) -> TestGraph:
    """A fresh graph below ``directory``."""
    kernel = Kernel.of(Root.parse(directory / "graph.omni"), settings)
    compiled = compile_schema(schema, domain=MINT.ulid())
    initialize(kernel, compiled)
    return TestGraph(kernel, compiled.catalog)
