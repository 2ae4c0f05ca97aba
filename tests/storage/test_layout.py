"""What lies below a root, and the promises every dataset keeps from its first version on."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import lance
import pytest
from lance.dataset import Branches

from omnigraph.effects.failpoints import Failpoint, armed
from omnigraph.effects.uri import Root
from omnigraph.errors import RecoveryRequired, StorageError
from omnigraph.graph import Graph, init, open_graph
from omnigraph.storage.datasets import LanceStore
from omnigraph.storage.transactions import CommitLost, DatasetRef
from tests.storage.legacy_graphs import KEY_METADATA, SCHEMA

RETIRED = {
    "_graph_commits.lance",
    "_graph_commit_actors.lance",
    "_graph_runs.lance",
    "_graph_run_actors.lance",
}


@pytest.fixture
def graph(root: Path) -> Graph:
    return init(root, SCHEMA)


def datasets(root: Path) -> Iterator[lance.LanceDataset]:
    """Every Lance dataset below a root, on every ref."""
    for versions in sorted(root.rglob("_versions")):
        yield lance.dataset(str(versions.parent))


def person(graph: Graph, branch: str = "main") -> lance.LanceDataset:
    kernel = graph._kernel
    entry = kernel.manifest.branch(branch).refresh().head_snapshot().table("node:Person")
    where = DatasetRef(kernel.table_uri(entry.location), entry.ref)
    return lance.dataset(where.address, version=entry.version)


def test_c_sto_001_a_fresh_root_holds_exactly_the_objects_of_the_layout(
    graph: Graph, root: Path
) -> None:
    assert sorted(path.name for path in root.iterdir()) == [
        "__digests",
        "__lease",
        "__manifest",
        "__schema_state.json",
        "_schema.ir.json",
        "_schema.pg",
        "edges",
        "nodes",
    ]


def test_c_sto_001_a_root_in_use_holds_nothing_outside_the_layout(graph: Graph, root: Path) -> None:
    graph.create_branch("feature")
    graph.mutate('query q { insert Person { name: "ada" } }', branch="feature")
    with (
        armed({Failpoint.MUTATION_POST_TABLE_COMMIT: "error"}),
        pytest.raises(RecoveryRequired),
    ):
        graph.mutate('query q { insert Person { name: "bob" } }')
    assert (root / "__recovery").is_dir()
    open_graph(root)
    names = {path.name for path in root.iterdir()}
    assert names - {"__recovery"} == {
        "__digests",
        "__lease",
        "__manifest",
        "__schema_state.json",
        "_graph_commit_recoveries.lance",
        "_schema.ir.json",
        "_schema.pg",
        "edges",
        "nodes",
    }
    assert not RETIRED & names
    assert not list((root / "__recovery").glob("*.json"))


def test_c_sto_002_table_directories_are_named_by_identity_and_incarnation(
    graph: Graph, root: Path
) -> None:
    catalog = graph._kernel.accepted_schema().catalog
    for kind, types in (("nodes", catalog.nodes.values()), ("edges", catalog.edges.values())):
        found = sorted(path.name for path in (root / kind).iterdir())
        assert found == sorted(f"{t.type_id:016x}-{t.incarnation_id:016x}" for t in types)
        assert all(re.fullmatch(r"[0-9a-f]{16}-[0-9a-f]{16}", name) for name in found)
    for entry in graph.snapshot().datasets:
        assert (root / entry.dataset_path).is_dir()


def test_c_sto_005_the_manifest_is_keyed_by_object_id_from_its_first_version(
    graph: Graph, root: Path
) -> None:
    graph.create_branch("feature")
    graph.mutate('query q { insert Person { name: "ada" } }', branch="feature")
    first = lance.dataset(str(root / "__manifest"), version=1)
    for manifest in (first, *datasets(root / "__manifest")):
        keyed = {field.name: field.metadata for field in manifest.schema if field.metadata}
        assert keyed == {"object_id": KEY_METADATA}


def test_c_sto_006_id_is_the_key_of_every_table_after_create_overwrite_and_fork(
    graph: Graph,
) -> None:
    def require_key(branch: str = "main") -> None:
        field = person(graph, branch).schema.field("id")
        assert field.metadata[b"lance-schema:unenforced-primary-key"] == b"true"
        assert not field.nullable

    require_key()
    graph.mutate('query q { insert Person { name: "ada" } }')
    require_key()
    graph.load(data=b'{"type":"Person","data":{"name":"bob"}}\n', mode="overwrite")
    require_key()
    graph.load(data=b"", mode="overwrite", replace_types=["node:Person"])
    assert person(graph).count_rows() == 0
    require_key()
    graph.create_branch("feature")
    graph.mutate('query q { insert Person { name: "cyd" } }', branch="feature")
    assert "/tree/gb-" in person(graph, "feature").uri
    require_key("feature")
    graph.load(
        data=b'{"type":"Person","data":{"name":"dan"}}\n', mode="overwrite", branch="feature"
    )
    require_key("feature")


def test_c_sto_007_stable_row_ids_are_on_everywhere_the_audit_included(
    graph: Graph, root: Path
) -> None:
    graph.create_branch("feature")
    graph.mutate('query q { insert Person { name: "ada" } }', branch="feature")
    with (
        armed({Failpoint.MUTATION_POST_FINALIZE_PRE_PUBLISHER: "error"}),
        pytest.raises(RecoveryRequired),
    ):
        graph.mutate('query q { insert City { name: "Oslo" } }')
    assert len(open_graph(root).list_recoveries()) == 1
    found = list(datasets(root))
    assert len(found) == 3 + 2 + 1 + 1  # tables, manifests, a forked table, the audit
    for dataset in found:
        assert dataset.has_stable_row_ids, dataset.uri
        assert dataset.data_storage_version == "2.2"
        assert not [key for key in dataset.config() if "auto_cleanup" in key]


def test_c_sto_051_branches_may_share_a_prefix_and_a_new_one_never_gets_an_old_ref(
    graph: Graph,
) -> None:
    for name in ("review", "review/1", "review/1/a", "review-1"):
        graph.create_branch(name)
        graph.mutate(f'query q {{ insert Person {{ name: "{name}" }} }}', branch=name)
    graph.delete_branch("review")
    branches = graph._kernel.manifest.main.refresh().branches
    assert sorted(branches) == ["review-1", "review/1", "review/1/a"]
    for name in branches:
        assert person(graph, name).to_table()["id"].to_pylist() == [name]
    first = branches["review/1"].ref
    graph.delete_branch("review/1")
    graph.create_branch("review/1")
    graph.create_branch("review")
    branches = graph._kernel.manifest.main.refresh().branches
    refs = [row.ref for row in branches.values()]
    assert first not in refs
    assert len(set(refs)) == 4
    assert all(re.fullmatch(r"gb-[0-9a-z]{26}", ref) for ref in refs)
    assert person(graph, "review/1").count_rows() == person(graph, "review").count_rows() == 0
    assert person(graph, "review/1/a").count_rows() == 1


def test_creating_a_dataset_that_exists_is_a_lost_commit_with_and_without_rows(
    tmp_path: Path,
) -> None:
    import pyarrow as pa

    store = LanceStore(Root.parse(tmp_path))
    where = DatasetRef(f"{store.root.uri}/table")
    schema = pa.schema([pa.field("id", pa.string())])
    store.create(where, schema, None, "first")
    for rows in (None, pa.table([["a"]], schema=schema)):
        with pytest.raises(CommitLost):
            store.create(where, schema, rows, "second")
    assert store.open(where).count_rows() == 0


def test_refs_are_listed_while_others_delete_them(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lance reads what it has listed one by one, and fails for what is gone by then."""
    graph.create_branch("feature")
    kernel, failures = graph._kernel, 3
    real = Branches.list

    def vanishing(self: Branches) -> object:
        nonlocal failures
        if failures:
            failures -= 1
            raise ValueError("Not found: _refs/branches/gone.json")
        return real(self)

    monkeypatch.setattr(Branches, "list", vanishing)
    assert list(kernel.lance.refs(kernel.manifest.main.where)) == [
        kernel.manifest.registration("feature").ref
    ]
    failures = 1000
    with pytest.raises(StorageError, match="kept changing"):
        kernel.lance.refs(kernel.manifest.main.where)
