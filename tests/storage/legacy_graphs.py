"""Graphs the way they were written before internal schema 4, with a record of what they show.

Written with Lance alone, from the description of the older shapes: tables in directories named by
the FNV-1a hash of their type, a manifest that knows tables by type key, commits and their authors
in datasets of their own, and branches that are Lance refs under the user's name.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import lance
import pyarrow as pa

from omnigraph.effects.clock import MINT
from omnigraph.effects.uri import Root
from omnigraph.schema.catalog import EdgeType, NodeType, table_schema
from omnigraph.schema.compile import compile_schema
from omnigraph.schema.contract import build_contract

SCHEMA = """
node Person { name: String @key  age: I32? }
node City { name: String @key }
edge Knows: Person -> Person { since: Date? }
"""

STAMP_KEY = "omnigraph:internal_schema_version"
KEY_METADATA = {b"lance-schema:unenforced-primary-key": b"true"}

MANIFEST_COLUMNS = [
    pa.field("object_id", pa.string(), nullable=False),
    pa.field("object_type", pa.string(), nullable=False),
    pa.field("location", pa.string()),
    pa.field("metadata", pa.string()),
    pa.field("base_objects", pa.list_(pa.field("item", pa.string()))),
    pa.field("table_key", pa.string(), nullable=False),
    pa.field("table_version", pa.uint64()),
    pa.field("table_branch", pa.string()),
    pa.field("row_count", pa.uint64()),
]
COMMIT_COLUMNS = pa.schema(
    [
        pa.field("graph_commit_id", pa.string(), nullable=False),
        pa.field("manifest_branch", pa.string()),
        pa.field("manifest_version", pa.uint64(), nullable=False),
        pa.field("parent_commit_id", pa.string()),
        pa.field("merged_parent_commit_id", pa.string()),
        pa.field("created_at", pa.timestamp("us"), nullable=False),
    ]
)
ACTOR_COLUMNS = pa.schema(
    [
        pa.field("graph_commit_id", pa.string(), nullable=False),
        pa.field("actor_id", pa.string(), nullable=False),
        pa.field("created_at", pa.timestamp("us"), nullable=False),
    ]
)

EPOCH = dt.datetime(2024, 5, 1, 12, 0, 0, 250)


def fnv1a(name: str) -> str:
    """The hash older graphs named table directories by."""
    value = 14695981039346656037
    for byte in name.encode():
        value = ((value ^ byte) * 1099511628211) & 0xFFFFFFFFFFFFFFFF
    return f"{value:016x}"


@dataclass(frozen=True)
class ShownCommit:
    """What a commit must look like, whoever reads it."""

    commit_id: str
    parent: str | None
    merged_parent: str | None
    actor: str | None
    created_at: int
    ids: dict[str, list[str]]
    """The entities at that commit, by type key."""


@dataclass
class OlderGraph:
    """A graph of stamp 1, 2 or 3 under construction."""

    root: Path
    stamp: int
    schema: str = SCHEMA
    key_column: str | None = None
    """The column of the manifest that is its key; by default none at stamp 1, else `object_id`."""
    stable_row_ids: bool = True
    file_format: Literal["2.0", "2.1", "2.2"] = "2.2"
    extra_tables: dict[str, pa.Schema] = field(default_factory=dict)
    """Tables of types the accepted schema does not know (any more), by type key."""
    lines: dict[str, list[ShownCommit]] = field(default_factory=dict)
    """The commits of each branch, oldest first."""
    pins: dict[str, dict[str, tuple[int, str | None]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.root.mkdir(parents=True)
        compiled = compile_schema(self.schema, domain=MINT.ulid())
        for name, text in build_contract(compiled.source, compiled.ir).objects().items():
            (self.root / name).write_text(text, encoding="utf-8")
        self.catalog = compiled.catalog
        types: list[NodeType | EdgeType] = [
            *compiled.catalog.nodes.values(),
            *compiled.catalog.edges.values(),
        ]
        tables: dict[str, pa.Schema] = {
            each.table_key: _plain(table_schema(each)) for each in types
        }
        self.tables = {**tables, **self.extra_tables}
        self.pins["main"] = {}
        rows = []
        for key, schema in self.tables.items():
            lance.write_dataset(
                schema.empty_table(),
                self.table_uri(key),
                schema=schema,
                enable_stable_row_ids=self.stable_row_ids,
                data_storage_version=self.file_format,
            )
            rows += [self._registration(key), self._pin(key, 1, None, 0)]
            self.pins["main"][key] = (1, None)
        lance.write_dataset(
            pa.Table.from_pylist(rows, schema=self.manifest_schema()),
            self.uri("__manifest"),
            enable_stable_row_ids=self.stable_row_ids,
            data_storage_version=self.file_format,
        )
        lance.write_dataset(COMMIT_COLUMNS.empty_table(), self.uri("_graph_commits.lance"))
        lance.write_dataset(ACTOR_COLUMNS.empty_table(), self.uri("_graph_commit_actors.lance"))
        self.lines["main"] = []
        self._commit("main", actor=None)

    # --- where things are -------------------------------------------------------------------------

    def uri(self, name: str, branch: str = "main") -> str:
        """A dataset of the root, on the ref of a branch."""
        base = f"{Root.parse(self.root).uri}/{name}"
        return base if branch == "main" else f"{base}/tree/{branch}"

    def table_path(self, key: str) -> str:
        kind, _, name = key.partition(":")
        return f"{kind}s/{fnv1a(name)}"

    def table_uri(self, key: str, branch: str | None = None) -> str:
        return self.uri(self.table_path(key), branch or "main")

    def manifest_schema(self) -> pa.Schema:
        key = self.key_column or ("object_id" if self.stamp > 1 else None)
        columns = [c.with_metadata(KEY_METADATA) if c.name == key else c for c in MANIFEST_COLUMNS]
        if key is not None:
            columns = [c.with_nullable(False) if c.name == key else c for c in columns]
        stamp = {STAMP_KEY.encode(): str(self.stamp).encode()} if self.stamp > 1 else None
        return pa.schema(columns, metadata=stamp)

    # --- what users did ---------------------------------------------------------------------------

    def write(
        self,
        key: str,
        *ids: str,
        branch: str = "main",
        actor: str | None = "act-ana",
        merged_parent: str | None = None,
    ) -> ShownCommit:
        """Add entities of one type as one commit."""
        version, ref = self.pins[branch][key]
        own = None if branch == "main" else branch
        if ref != own:
            parent = lance.dataset(self.table_uri(key, ref), version=version)
            parent.create_branch(branch, version)
        table = lance.dataset(self.table_uri(key, own))
        records = [_record(table.schema, entity_id) for entity_id in ids]
        table.insert(pa.Table.from_pylist(records, schema=table.schema))
        table = lance.dataset(self.table_uri(key, own))
        self.publish(branch, self._pin(key, table.version, own, table.count_rows()))
        self.pins[branch][key] = (table.version, own)
        return self._commit(branch, actor=actor, merged_parent=merged_parent)

    def drop(self, key: str) -> ShownCommit:
        """Drop a type on main."""
        version, _ = self.pins["main"].pop(key)
        tombstone = {
            "object_id": f"{key}$tombstone${version:020d}",
            "object_type": "table_tombstone",
            "table_key": key,
            "table_version": version,
        }
        self.publish("main", tombstone)
        return self._commit("main", actor="act-ana")

    def create_branch(self, name: str, source: str = "main") -> None:
        """Fork the manifest and the commits; tables follow when they are written."""
        for dataset in ("__manifest", "_graph_commits.lance"):
            handle = lance.dataset(self.uri(dataset, source))
            handle.create_branch(name, handle.version)
        self.pins[name] = dict(self.pins[source])
        self.lines[name] = list(self.lines[source])

    def leave_run(self, name: str) -> None:
        """A run that was abandoned: a ref of the manifest that published something of its own."""
        handle = lance.dataset(self.uri("__manifest"))
        handle.create_branch(name, handle.version)
        self.publish(name, self._pin("node:Person", 999, name, 12345))

    def publish(self, branch: str, *rows: dict[str, Any]) -> int:
        """Merge rows into the manifest of a branch; the new manifest version."""
        handle = lance.dataset(self.uri("__manifest", branch))
        table = pa.Table.from_pylist(list(rows), schema=handle.schema)
        merge = handle.merge_insert("object_id").when_matched_update_all()
        merge.when_not_matched_insert_all().execute(table)
        return int(lance.dataset(self.uri("__manifest", branch)).version)

    # --- reading back -----------------------------------------------------------------------------

    def ids_at(self, pins: dict[str, tuple[int, str | None]]) -> dict[str, list[str]]:
        out = {}
        for key, (version, ref) in sorted(pins.items()):
            table = lance.dataset(self.table_uri(key, ref), version=version)
            out[key] = sorted(table.to_table(columns=["id"])["id"].to_pylist())
        return out

    def head(self, branch: str = "main") -> ShownCommit:
        return self.lines[branch][-1]

    # --- inside -----------------------------------------------------------------------------------

    def _commit(
        self, branch: str, *, actor: str | None, merged_parent: str | None = None
    ) -> ShownCommit:
        line = self.lines[branch]
        at = sum(len(commits) for commits in self.lines.values())
        created_at = EPOCH + dt.timedelta(minutes=at)
        shown = ShownCommit(
            commit_id=MINT.ulid(),
            parent=line[-1].commit_id if line else None,
            merged_parent=merged_parent,
            actor=actor,
            created_at=int(created_at.replace(tzinfo=dt.UTC).timestamp()) * 1_000_000 + 250,
            ids=self.ids_at(self.pins[branch]),
        )
        version = lance.dataset(self.uri("__manifest", branch)).version
        record = {
            "graph_commit_id": shown.commit_id,
            "manifest_branch": None if branch == "main" else branch,
            "manifest_version": version,
            "parent_commit_id": shown.parent,
            "merged_parent_commit_id": merged_parent,
            "created_at": created_at,
        }
        commits = lance.dataset(self.uri("_graph_commits.lance", branch))
        commits.insert(pa.Table.from_pylist([record], schema=COMMIT_COLUMNS))
        if actor is not None:
            author = {
                "graph_commit_id": shown.commit_id,
                "actor_id": actor,
                "created_at": created_at,
            }
            actors = lance.dataset(self.uri("_graph_commit_actors.lance"))
            actors.insert(pa.Table.from_pylist([author], schema=ACTOR_COLUMNS))
        line.append(shown)
        return shown

    def _registration(self, key: str) -> dict[str, Any]:
        return {
            "object_id": key,
            "object_type": "table",
            "location": self.table_path(key),
            "table_key": key,
        }

    def _pin(self, key: str, version: int, ref: str | None, row_count: int) -> dict[str, Any]:
        return {
            "object_id": f"{key}${version:020d}",
            "object_type": "table_version",
            "table_key": key,
            "table_version": version,
            "table_branch": ref,
            "row_count": row_count,
        }


def older_graph(root: Path, stamp: int, **options: Any) -> OlderGraph:
    """A graph with data and history on main and on the branch `feature`.

    Main: genesis, two writes before the fork and one after it. The branch: one write to a table it
    shares and one to a table it has forked.
    """
    graph = OlderGraph(root, stamp, **options)
    graph.write("node:Person", "ada", "bob")
    graph.write("node:City", "Oslo", actor=None)
    graph.create_branch("feature")
    graph.write("node:Person", "cyd", branch="feature", actor="act-bo")
    graph.write("edge:Knows", "ada-bob", branch="feature", actor="act-bo")
    graph.write("node:Person", "dan", actor="omnigraph:recovery")
    graph.create_branch("review/1", "feature")
    graph.write("node:Person", "eve", branch="review/1")
    merged = graph.head("feature").commit_id
    graph.write("node:City", "Bern", merged_parent=merged)
    if stamp < 3:
        for name in ("__run__01", "__run__02", "__run__03"):
            graph.leave_run(name)
    return graph


def _plain(schema: pa.Schema) -> pa.Schema:
    """A table schema without the annotations older tables did not have."""
    return pa.schema([field.remove_metadata() for field in schema])


def _record(schema: pa.Schema, entity_id: str) -> dict[str, Any]:
    """An entity of any of the test types; edge ids are `source-target`."""
    record: dict[str, Any] = {"id": entity_id}
    if "name" in schema.names:
        record["name"] = entity_id
    if "src" in schema.names:
        record["src"], record["dst"] = entity_id.split("-")
    return record
