"""The `Graph` object: one open graph and everything that can be done with it.

Every face (command line, server, notebook) is a thin layer over this. It decides who may do what,
and hands the work to the rooms below.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from omnigraph.branching.branches import create_branch, delete_branch, list_branches
from omnigraph.branching.export import export_blocks
from omnigraph.commit.audit import RecoveryAudit, RecoveryRow
from omnigraph.commit.initialize import initialize
from omnigraph.commit.kernel import Kernel
from omnigraph.commit.limits import WriteLimits
from omnigraph.commit.load_records import load_records
from omnigraph.commit.mutate import mutate
from omnigraph.commit.opening import open_for_reading, open_for_writing
from omnigraph.commit.receipts import commit_info
from omnigraph.commit.records.problems import Grammar
from omnigraph.commit.records.source import RecordSource
from omnigraph.commit.recovery import Recoverer, Settlement
from omnigraph.commit.write_path import WritePath
from omnigraph.effects.uri import Root
from omnigraph.errors import InputError, NotFound
from omnigraph.model.receipts import (
    BranchCreated,
    BranchDeleted,
    CommitInfo,
    LoadMode,
    LoadReceipt,
    MutationReceipt,
)
from omnigraph.query.compile import QueryCompiler
from omnigraph.query.plan import MutationPlan
from omnigraph.schema.catalog import Catalog, EdgeType, NodeType
from omnigraph.schema.compile import compile_schema
from omnigraph.schema.contract import AcceptedSchema
from omnigraph.storage.layout import MAIN
from omnigraph.storage.reader import SnapshotReader
from omnigraph.storage.snapshot import Snapshot
from omnigraph.syntax.source import Source

OpenMode = Literal["read_write", "read_only"]


def init(
    uri: str | os.PathLike[str],
    schema: str | Path | Source,
    *,
    force: bool = False,
    actor: str | None = None,
) -> Graph:
    """Create a graph at ``uri`` with a schema (a text, or the path of a `.pg` file) and open it.

    Raises the compile error of a bad schema before anything is written, and `AlreadyInitialized`
    when a graph is there already.
    """
    kernel = Kernel.of(Root.parse(uri))
    compiled = compile_schema(schema, domain=kernel.ids.ulid())
    initialize(kernel, compiled, actor_id=actor, force=force)
    return Graph(kernel)


def open_graph(
    uri: str | os.PathLike[str], mode: OpenMode = "read_write", *, settle: bool = True
) -> Graph:
    """Open the graph at ``uri``.

    Opening read-write first brings a graph of an older version up to date and settles what an
    interrupted write left behind, unless ``settle`` leaves that to `Graph.recover`, which says what
    became of each operation. Opening read-only writes nothing at all. Raises `NotFound` when there
    is no graph.
    """
    kernel = Kernel.of(Root.parse(uri), serve_older=mode == "read_only")
    if mode == "read_only":
        open_for_reading(kernel)
    else:
        open_for_writing(kernel, settle=settle)
    return Graph(kernel, read_only=mode == "read_only")


@dataclass(frozen=True, slots=True)
class TableSummary:
    """One type of a snapshot."""

    entity_kind: str
    type_name: str
    dataset_path: str
    published_dataset_version: int
    native_dataset_branch: str | None
    entity_count: int


@dataclass(frozen=True, slots=True)
class SnapshotSummary:
    """What a branch holds at its head."""

    graph_branch: str
    graph_commit_id: str
    graph_manifest_version: int
    internal_schema_version: int
    datasets: tuple[TableSummary, ...]

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "graph_branch": self.graph_branch,
            "graph_commit_id": self.graph_commit_id,
            "graph_manifest_version": self.graph_manifest_version,
            "internal_schema_version": self.internal_schema_version,
            "datasets": [
                {name: getattr(entry, name) for name in TableSummary.__slots__}
                for entry in self.datasets
            ],
        }


class Graph:
    """One open graph. Safe to share between threads."""

    def __init__(self, kernel: Kernel, *, read_only: bool = False) -> None:
        self._kernel = kernel
        self._read_only = read_only
        self._path = WritePath(kernel)
        self._limits = WriteLimits.from_environment(os.environ)
        self._compiler: QueryCompiler | None = None
        self._read_with: Catalog | None = None

    def __repr__(self) -> str:
        return f"Graph({self.uri!r})"

    @property
    def uri(self) -> str:
        """Where the graph lives, in canonical form."""
        return self._kernel.root.uri

    @property
    def schema_source(self) -> str:
        """The accepted schema, as it was written."""
        return self._accepted().contract.source

    # --- writing ----------------------------------------------------------------------------------

    def mutate(
        self,
        source: str | Path | Source,
        params: Mapping[str, Any] | None = None,
        *,
        name: str | None = None,
        branch: str | None = None,
        expected_head: str | None = None,
        actor: str | None = None,
        operation_id: str | None = None,
    ) -> MutationReceipt:
        """Run a write query as one commit.

        ``expected_head`` makes it conditional: it runs only if that commit is the branch's head.
        ``operation_id`` names the write: repeating it with the same id returns the first receipt.
        """
        self._require_writable("mutate")
        return mutate(
            self._kernel,
            self._path,
            lambda catalog: self._compiled_mutation(source, name, catalog),
            params,
            accepted=self._accepted(),
            branch=branch or MAIN,
            limits=self._limits,
            actor_id=actor,
            expected_head=expected_head,
            operation_id=operation_id,
        )

    def load(
        self,
        *paths: str | os.PathLike[str],
        mode: LoadMode,
        data: bytes | str | Iterable[bytes] | None = None,
        branch: str | None = None,
        from_: str | None = None,
        grammar: Grammar = "compatible",
        replace_types: Iterable[str] = (),
        actor: str | None = None,
        operation_id: str | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> LoadReceipt:
        """Load graph records from JSONL files, or from ``data``, as one commit.

        ``data`` may arrive in blocks. A missing ``branch`` is created from ``from_`` if that is
        given. See the guide for the modes `append`, `merge` and `overwrite`. ``progress`` is told
        the bytes of each block that was read, unpacked.
        """
        self._require_writable("load")
        sources = [RecordSource.file(Path(path)) for path in paths]
        if isinstance(data, bytes | str):
            sources.append(RecordSource.of(data))
        elif data is not None:
            sources.append(RecordSource.stream(data))
        if progress is not None:
            sources = [_watched(source, progress) for source in sources]
        target = branch or MAIN
        if from_ is None:
            self._kernel.manifest.branch(target)  # a missing branch is told before reading input
        return load_records(
            self._kernel,
            self._path,
            sources,
            branch=target,
            mode=mode,
            grammar=grammar,
            limits=self._limits,
            replace_types=replace_types,
            base_branch=from_,
            ensure_branch=partial(self._ensure_branch, target, from_, actor),
            actor_id=actor,
            operation_id=operation_id,
        )

    # --- reading ----------------------------------------------------------------------------------

    def snapshot(self, branch: str | None = None) -> SnapshotSummary:
        """The tables and counts at the head of a branch."""
        snapshot = self._snapshot(branch, None)
        return SnapshotSummary(
            snapshot.branch,
            snapshot.commit_id,
            snapshot.manifest_version,
            self._kernel.manifest.main.stamp,
            tuple(
                TableSummary(
                    entry.kind,
                    entry.type_name,
                    entry.location,
                    entry.version,
                    entry.ref,
                    entry.row_count,
                )
                for entry in snapshot.tables.values()
            ),
        )

    def export(
        self,
        *,
        branch: str | None = None,
        snapshot: str | None = None,
        types: Iterable[str] | None = None,
    ) -> Iterator[bytes]:
        """The entities of a branch head, or of one commit, as JSON lines in blocks of whole lines.

        Loading them with mode `overwrite` reproduces ids, values and endpoints.
        """
        reader = self._reader(branch, snapshot)
        return export_blocks(reader, self._catalog_of(reader.snapshot), type_names=types)

    def entity_at(
        self,
        type_key: str,
        entity_id: str,
        *,
        branch: str | None = None,
        snapshot: str | None = None,
    ) -> dict[str, Any] | None:
        """One entity at the head of a branch or at a commit; None if it is not there.

        ``type_key`` is `node:Name` or `edge:Name`. Blob properties are left out.
        """
        reader = self._reader(branch, snapshot)
        columns = self._plain_columns(type_key, self._catalog_of(reader.snapshot))
        import pyarrow as pa

        found = reader.rows_where_in(type_key, "id", pa.array([entity_id]), columns)
        rows: list[dict[str, Any]] = found.to_pylist()
        return rows[0] if rows else None

    # --- branches and history ---------------------------------------------------------------------

    def create_branch(
        self, name: str, from_: str | None = None, *, actor: str | None = None
    ) -> BranchCreated:
        """Create a branch at the head of another; costs no data copy."""
        self._require_writable("branch create")
        source = from_ or MAIN
        create_branch(self._kernel, name, source, actor_id=actor)
        return BranchCreated(self.uri, source, name, actor)

    def list_branches(self) -> list[str]:
        """The branches, sorted."""
        return list_branches(self._kernel)

    def delete_branch(self, name: str, *, actor: str | None = None) -> BranchDeleted:
        """Delete a branch; its commits are gone with it."""
        self._require_writable("branch delete")
        delete_branch(self._kernel, name)
        return BranchDeleted(self.uri, name, actor)

    def list_commits(
        self, branch: str | None = None, *, actor: str | None = None
    ) -> list[CommitInfo]:
        """The commits a branch's head reaches, newest first; ``actor`` as author or recoverer."""
        lineage = self._kernel.manifest.refreshed(branch or MAIN).state.lineage()
        return [
            commit_info(row)
            for row in lineage
            if actor is None or actor in (row.actor_id, row.recovered_by)
        ]

    def show_commit(self, commit_id: str) -> CommitInfo:
        """One commit of any branch; raises `NotFound`."""
        for branch in self.list_branches():
            row = self._kernel.manifest.branch(branch).refresh().commits.get(commit_id)
            if row is not None:
                return commit_info(row)
        raise NotFound(
            f"there is no commit {commit_id}",
            hint="list commits with `omnigraph commit list`",
        )

    # --- recovery ---------------------------------------------------------------------------------

    def recover(self, *, force: bool = False) -> list[Settlement]:
        """Finish or undo every interrupted operation; ``force`` also through foreign commits."""
        self._require_writable("recover")
        return Recoverer(self._kernel).run("full", force=force)

    def list_recoveries(self) -> list[RecoveryRow]:
        """Every recovery so far, oldest first."""
        return RecoveryAudit(self._kernel.lance, self._kernel.root.uri).rows()

    # --- inside -----------------------------------------------------------------------------------

    def _accepted(self) -> AcceptedSchema:
        return self._kernel.accepted_schema()

    def _catalog_of(self, snapshot: Snapshot) -> Catalog:
        """The types to read a snapshot with: those known, until a commit names another schema."""
        known = self._read_with
        if known is None or known.schema_hash != snapshot.commit.schema_hash:
            known = self._read_with = self._accepted().catalog
        return known

    def _compiled_mutation(
        self, source: str | Path | Source, name: str | None, catalog: Catalog
    ) -> MutationPlan:
        compiler = self._compiler
        if compiler is None or compiler.catalog is not catalog:
            compiler = self._compiler = QueryCompiler(catalog)
        plan = compiler.compile(source, name)
        if not isinstance(plan, MutationPlan):
            raise InputError(
                f"query '{plan.name}' only reads", hint="run it with `query` instead of `mutate`"
            )
        return plan

    def _snapshot(self, branch: str | None, commit_id: str | None) -> Snapshot:
        state = self._kernel.manifest.refreshed(branch or MAIN).state
        return state.head_snapshot() if commit_id is None else state.snapshot_at(commit_id)

    def _reader(self, branch: str | None, commit_id: str | None) -> SnapshotReader:
        snapshot = self._snapshot(branch, commit_id)
        return SnapshotReader(self._kernel.lance, self._kernel.root.uri, snapshot)

    def _plain_columns(self, type_key: str, catalog: Catalog) -> list[str]:
        types: list[NodeType | EdgeType] = [*catalog.nodes.values(), *catalog.edges.values()]
        for entity_type in types:
            if entity_type.table_key == type_key:
                ends = ["src", "dst"] if type_key.startswith("edge:") else []
                plain = [p.name for p in entity_type.properties.values() if not p.type.is_blob]
                return ["id", *ends, *plain]
        raise NotFound(
            f"there is no type {type_key}", hint="write it as `node:Name` or `edge:Name`"
        )

    def _ensure_branch(self, name: str, from_: str | None, actor: str | None) -> bool:
        """Create a missing branch if the caller said from where; whether it was created."""
        if from_ is None or name in self.list_branches():
            return False
        create_branch(self._kernel, name, from_, actor_id=actor)
        return True

    def _require_writable(self, verb: str) -> None:
        if self._read_only:
            raise InputError(
                f"`{verb}` needs a graph opened for writing", hint='open it with mode="read_write"'
            )


def _watched(source: RecordSource, progress: Callable[[int], None]) -> RecordSource:
    """The same source, telling ``progress`` of every block."""

    def blocks() -> Iterator[bytes]:
        for block in source.blocks():
            progress(len(block))
            yield block

    return RecordSource(source.name, blocks)
