"""Real sidecars of every kind of operation, left by interrupting it in a small graph."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import pytest

from omnigraph.effects.failpoints import armed
from omnigraph.errors import RecoveryRequired
from omnigraph.graph import Graph, init
from tests.support.groups import in_group

SCHEMA = "node Person { name: String @key  age: I32? @index }  node City { name: String @key }"
WIDER = f"{SCHEMA}  node Planet {{ name: String @key }}".replace("age: I32?", "age: I64?")
WIDEST = WIDER.replace("Planet { name: String @key }", "Planet { name: String @key  size: I32? }")
ADD = """query add($n: String) { insert Person { name: $n, age: 1 }  insert City { name: $n } }"""


def _add(graph: Graph, name: str, branch: str = "main") -> object:
    return graph.mutate(ADD, {"n": name}, branch=branch, actor="act-ana")


def _load(graph: Graph) -> object:
    rows = "\n".join(
        orjson.dumps({"type": kind, "data": {"name": "lost"}}).decode()
        for kind in ("Person", "City")
    )
    return graph.load(data=rows, mode="append")


def _late(graph: Graph) -> object:
    """Undo a write, then bring the table to where it was: as if its commit came too late."""
    from omnigraph.commit.recovery.audit import RecoveryAudit
    from omnigraph.storage.transactions import DatasetRef, stage_restore, transaction_uuid

    kernel = graph._kernel
    with armed("mutation.post_table_commit=error*1"), pytest.raises(RecoveryRequired):
        _add(graph, "lost")
    (settled,) = graph.recover()
    assert settled.outcome == "rolled_back"
    (row,) = RecoveryAudit(kernel.lance, kernel.root.uri).rows()
    retired = next(table for table in row.retired if table.location.startswith("nodes/"))
    for table in row.retired:
        handle = kernel.lance.open(DatasetRef(kernel.table_uri(table.location), table.ref))
        if transaction_uuid(handle, handle.version) in table.uuids:
            retired = table
    handle = kernel.lance.open(DatasetRef(kernel.table_uri(retired.location), retired.ref))
    kernel.lance.commit(handle, stage_restore(handle, 1, retired.uuids[0]))
    with armed("recovery.record_audit=error*1"):
        return graph.recover()


def _group(graph: Graph) -> object:
    """Two writers that share a publish."""
    first, second = in_group(graph, [partial(_add, graph, name) for name in ("lost", "lost too")])
    assert type(first) is type(second)
    if isinstance(first, Exception):
        raise first
    return first


@dataclass(frozen=True)
class Kind:
    """How an operation is interrupted."""

    run: Callable[[Graph], object]
    at: str
    adds: tuple[str, ...] = ("lost",)
    """What the graph shows in addition if it is completed."""


KINDS: Mapping[str, Kind] = {
    "Mutation": Kind(lambda graph: _add(graph, "lost"), "mutation.post_table_commit=error*1"),
    "complete Mutation": Kind(
        lambda graph: _add(graph, "lost"), "mutation.post_finalize_pre_publisher=error*1"
    ),
    "first touch": Kind(
        lambda graph: _add(graph, "lost", "review"), "mutation.post_table_commit=error*1"
    ),
    "idle fork": Kind(
        lambda graph: _add(graph, "lost", "review"), "mutation.post_fork_pre_commit=error*1"
    ),
    "group": Kind(_group, "group.between_members=error*1", ("lost", "lost too")),
    "complete group": Kind(
        _group, "mutation.post_finalize_pre_publisher=error*1", ("lost", "lost too")
    ),
    "Load": Kind(_load, "mutation.post_table_commit=error*1"),
    "BranchMerge": Kind(
        lambda graph: graph.merge_branch("review"), "branch_merge.between_chunks=error*1"
    ),
    "SchemaApply": Kind(
        lambda graph: graph.apply_schema(WIDER), "schema_apply.post_table_commit=error*1"
    ),
    "complete SchemaApply": Kind(
        lambda graph: graph.apply_schema(WIDER), "schema_apply.post_table_commit=error@2*1"
    ),
    "published SchemaApply": Kind(
        lambda graph: graph.apply_schema(WIDER), "schema_apply.after_manifest_commit=error*1"
    ),
    "SchemaRebase": Kind(
        lambda graph: graph.rebase_schema("review"), "schema_rebase.post_table_commit=error*1"
    ),
    "complete SchemaRebase": Kind(
        lambda graph: graph.rebase_schema("review"), "schema_rebase.pre_publish=error*1"
    ),
    "EnsureIndices": Kind(
        lambda graph: graph.ensure_indices(), "ensure_indices.post_table_effect=error*1"
    ),
    "Optimize": Kind(
        lambda graph: graph.optimize(), "optimize.post_phase_b_pre_manifest_commit=error*1"
    ),
    "Recovery": Kind(_late, ""),
}


@dataclass(frozen=True)
class Interrupted:
    """A graph with one sidecar, which every test may change: `fresh` puts the bytes back."""

    kind: str
    root: Path
    copy: Path
    name: str
    """The object of the sidecar."""
    record: dict[str, Any]
    """Its content."""

    def fresh(self, record: object | None = None) -> Path:
        """The graph as it was interrupted, its sidecar with this content instead of its own."""
        shutil.rmtree(self.root)
        shutil.copytree(self.copy, self.root)
        if record is not None:
            content = record if isinstance(record, bytes) else orjson.dumps(record)
            (self.root / self.name).write_bytes(content)
        return self.root


def interrupted(directory: Path, kind: str) -> Interrupted:
    """A graph with two branches below ``directory``, and what an operation of a kind left in it."""
    root = directory / "graph.omni"
    graph = init(root, SCHEMA)
    _add(graph, "kept")
    if "SchemaApply" not in kind:
        graph.create_branch("review")
        if "SchemaRebase" in kind:
            _add(graph, "lost", "review")
            graph.apply_schema(WIDER)
            graph.apply_schema(WIDEST)
        if kind == "BranchMerge":
            _add(graph, "lost", "review")
            _add(graph, "meanwhile")
    if kind == "Optimize":
        for name in "abc":
            _add(graph, name)
    how = KINDS[kind]
    if how.at:
        with armed(how.at), pytest.raises(RecoveryRequired):
            how.run(graph)
    else:
        with pytest.raises(Exception, match="record_audit"):
            how.run(graph)
    graph.close()
    (file,) = (root / "__recovery").iterdir()
    copy = directory / "copy"
    shutil.copytree(root, copy)
    return Interrupted(kind, root, copy, f"__recovery/{file.name}", orjson.loads(file.read_bytes()))


def contents(root: Path) -> dict[str, bytes]:
    """Every file of a graph but for leases, sidecars and what was set aside of them."""
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and path.relative_to(root).parts[0] not in OWN
    }


OWN = ("__lease", "__recovery", "__recovery_refused")


def names(graph: Graph, type_name: str = "Person", branch: str = "main") -> list[str]:
    """What a branch shows of a type."""
    rows = graph.query(
        f"query q {{ match {{ $x: {type_name} }} return {{ $x.name }} }}", branch=branch
    )
    return sorted(row["x.name"] for row in rows.to_pylist())
