"""Serving a cluster: exactly what was applied, verified, and one broken graph beside the others."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from omnigraph.cluster.serving import applied_graph_uri, read_applied
from omnigraph.errors import ClusterRefused
from omnigraph.graph import open_graph
from omnigraph.server.auth import TOKENS_FILE
from tests.cluster.conftest import CLUSTER_POLICY, POLICY, QUERIES, Fleet
from tests.crash.processes import wait_until
from tests.server.live import TOKENS, Live, serving, with_tokens
from tests.server.test_process import started
from tests.server.test_workers import pids

SECRET = "OMNIGRAPH_TEST_KEY"


@contextmanager
def served(fleet: Fleet, place: str | None = None, **environment: str) -> Iterator[Live]:
    cluster = str(fleet.directory) if place is None else place
    variables = with_tokens(**environment)
    with serving(environment=variables, cluster=cluster, applies_schemas=False) as live:
        yield live


def refused(fleet: Fleet) -> ClusterRefused:
    """What stops a server of the cluster from starting."""
    with pytest.raises(ClusterRefused) as caught, served(fleet):
        pass
    return caught.value


def names(live: Live, actor: str = "act-ana", graph_id: str = "people") -> list[str]:
    answer = live.client(actor, graph_id).get("/queries")
    assert answer.status_code == 200, answer.text
    return [each["name"] for each in answer.json()["queries"]]


def reload(live: Live) -> bool:
    return bool(live.call(live.server.reloader.reload))


def blob_of(fleet: Fleet, kind: str) -> Path:
    (path,) = (
        each
        for each in (fleet.directory / "__cluster" / "resources" / kind).rglob("*")
        if each.is_file()
    )
    return path


def test_c_clu_044_serving_sees_what_was_applied_and_ignores_edits_and_locks(running: Fleet):
    running.write(queries__people_gq="this is no query", base_yaml="nor a policy")
    running.edit("cluster.yaml", "  sales: { schema: sales.pg }\n", "  no_graph: {}\n")
    running.lock.write_text("held", encoding="utf-8")
    with served(running) as live:
        assert sorted(live.server.app.generation.graphs) == ["people", "sales"]
        assert names(live) == ["everybody"]
        client = live.client("act-ana", "people")
        assert client.post("/queries/everybody", json={}).status_code == 200
        # act-cy is in no group of the applied policy.
        assert (
            live.client("act-cy", "people").post("/queries/everybody", json={}).status_code != 200
        )
        assert client.post("/schema/apply", json={"schema_source": "x"}).status_code in (403, 409)
    assert running.lock.read_text(encoding="utf-8") == "held"
    assert running.ledger.state_revision == 2


def test_a_reload_switches_revisions_and_drops_no_request(running: Fleet):
    with served(running) as live:
        handle = live.graph("people")
        answers: list[int] = []
        is_over = threading.Event()
        client = live.client("act-ana", "people")

        def ask() -> None:
            while not is_over.is_set() or not answers:
                answers.append(client.post("/queries/everybody", json={}).status_code)

        asking = threading.Thread(target=ask)
        asking.start()
        try:
            for turn in range(3):
                running.write(queries__more_gq=QUERIES.replace("everybody", f"turn{turn}"))
                running.applied()
                assert f"turn{turn}" not in names(live)
                assert reload(live)
                assert f"turn{turn}" in names(live)
        finally:
            is_over.set()
            asking.join()
        assert set(answers) == {200}
        # The handle is kept: neither its graph nor its policy has changed.
        assert live.graph("people") is handle


def test_a_reload_of_a_cluster_that_cannot_be_trusted_keeps_what_is_served(running: Fleet):
    with served(running) as live:
        running.state.write_bytes(b"{")
        assert not reload(live)
        assert names(live) == ["everybody"]


def test_c_clu_045_an_unfinished_operation_takes_its_own_graph_out_of_service(running: Fleet):
    sidecar = {
        "schema_version": 1,
        "operation_id": "01M7R3YCHCNNDJJ8QWRN8DH0Y7",
        "started_at": "2026-11-18T20:00:36.110Z",
        "kind": "schema_apply",
        "graph_id": "people",
        "graph_uri": "x",
    }
    path = running.directory / "__cluster" / "recoveries" / "a.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(sidecar), encoding="utf-8")
    with served(running) as live:
        generation = live.server.app.generation
        assert sorted(generation.graphs) == ["sales"]
        assert "01M7R3YCHCNNDJJ8QWRN8DH0Y7" in generation.quarantined["people"]
        assert live.client("act-ana", "people").get("/snapshot").status_code == 404
        assert live.client("act-ana", "sales").get("/snapshot").status_code == 200
        path.unlink()
        assert reload(live)
        assert names(live) == ["everybody"]
    for text in ("{", "{}", json.dumps({**sidecar, "schema_version": 2})):
        path.write_text(text, encoding="utf-8")
        assert refused(running).diagnostic == "cluster_recovery_unattributed"


def test_c_clu_045_one_of_three_graphs_is_broken_and_readyz_names_it(running: Fleet):
    running.edit(
        "cluster.yaml",
        "policies:\n",
        "  zoo: { schema: sales.pg }\npolicies:\n"
        "  ops: { file: ops.yaml, applies_to: [cluster] }\n",
    )
    running.write(ops_yaml=CLUSTER_POLICY)
    running.applied()
    manifest = running.root("zoo") / "__manifest"
    manifest.rename(manifest.with_name("elsewhere"))
    with served(running) as live:
        ready = live.client("act-ana", None).get("/readyz")
        assert ready.status_code == 200
        assert ready.json()["quarantined"] == ["zoo"]
        listed = live.client("act-ana", None).get("/graphs").json()["graphs"]
        assert [each["graph_id"] for each in listed] == ["people", "sales"]
        for graph_id in ("people", "sales"):
            assert live.client("act-ana", graph_id).get("/snapshot").status_code == 200
        assert live.client("act-ana", "zoo").get("/snapshot").status_code == 404
        # Mended, it is served without a restart.
        manifest.with_name("elsewhere").rename(manifest)
        assert reload(live)
        assert live.client("act-ana", "zoo").get("/snapshot").status_code == 200
    variables = with_tokens()
    manifest.rename(manifest.with_name("elsewhere"))
    with (
        pytest.raises(ValueError, match="zoo"),
        serving(environment=variables, cluster=str(running.directory), require_all_graphs=True),
    ):
        pass


def test_c_clu_046_a_server_starts_from_the_storage_root_without_the_files(fleet: Fleet):
    fleet.edit("cluster.yaml", "version: 1", "version: 1\nstorage: ../stored")
    assert fleet.cluster.import_().ok
    fleet.applied()
    stored = fleet.directory.parent / "stored"
    for path in sorted(fleet.directory.iterdir()):
        path.rename(path.with_name(f"{path.name}.gone"))
    for place in (str(stored), stored.as_uri()):
        with served(fleet, place) as live:
            assert names(live) == ["everybody"]


@pytest.mark.parametrize("kind", ["query", "policy"])
def test_c_srv_005_a_damaged_catalog_stops_the_server_with_its_code(running: Fleet, kind: str):
    path = blob_of(running, kind)
    good = path.read_bytes()
    path.write_bytes(good + b"\n")
    problem = refused(running)
    assert problem.diagnostic == "catalog_payload_digest_mismatch"
    assert path.name in problem.message
    path.unlink()
    assert refused(running).diagnostic == "catalog_payload_missing"
    path.write_bytes(good)
    with served(running) as live:
        assert names(live) == ["everybody"]


def test_a_cluster_of_which_nothing_was_applied_is_not_served(fleet: Fleet):
    assert refused(fleet).diagnostic == "cluster_state_missing"
    assert fleet.cluster.import_().ok
    assert refused(fleet).diagnostic == "cluster_empty"


def test_a_cluster_without_a_healthy_graph_is_not_served(running: Fleet):
    for graph_id in ("people", "sales"):
        running.root(graph_id).rename(running.root(graph_id).with_suffix(".gone"))
    problem = refused(running)
    assert problem.diagnostic == "cluster_no_healthy_graphs"
    assert "people" in problem.message


TWIN = {"applies_to": ["graph.people"], "digest": "a" * 64}
WIDER = {
    "external_blob_policy": {
        "mode": "allow",
        "bases": [{"uri": "s3://bkt/x", "scope": "server_safe"}],
    }
}
OTHER_MODEL = {"embedding_profile": {"kind": "mock", "model": "other"}}


@pytest.mark.parametrize(
    ("address", "change", "code"),
    [
        ("policy.base", {"applies_to": None}, "policy_bindings_missing"),
        ("policy.twin", TWIN, "duplicate_policy_binding"),
        ("graph.people", WIDER, "external_blob_policy_digest_mismatch"),
        ("provider.embedding.e", OTHER_MODEL, "embedding_provider_digest_mismatch"),
        ("provider.embedding.e", {"embedding_profile": None}, "embedding_provider_profile_missing"),
    ],
)
def test_an_edited_ledger_is_not_served(
    running: Fleet, address: str, change: dict[str, object], code: str
):
    running.edit(
        "cluster.yaml", "graphs:\n", "providers: { embedding: { e: { kind: mock } } }\ngraphs:\n"
    )
    running.edit("cluster.yaml", "schema: sales.pg", "schema: sales.pg, embedding_provider: e")
    running.applied()

    def edit(document: dict[str, Any]) -> None:
        found = document["applied_revision"]["resources"].setdefault(address, {})
        found.update(change)
        for name in [name for name, value in change.items() if value is None]:
            del found[name]

    running.edit_ledger(edit)
    assert refused(running).diagnostic == code


def test_a_secret_is_resolved_when_a_server_starts_and_its_absence_leaves_one_graph_out(
    running: Fleet,
):
    provider = f"providers: {{ embedding: {{ e: {{ api_key: '${{{SECRET}}}' }} }} }}\ngraphs:\n"
    running.edit("cluster.yaml", "graphs:\n", provider)
    running.edit("cluster.yaml", "schema: sales.pg", "schema: sales.pg, embedding_provider: e")
    running.applied()
    assert "sk-1" not in running.state.read_text(encoding="utf-8")
    with served(running) as live:
        assert sorted(live.server.app.generation.graphs) == ["people"]
        assert SECRET in live.server.app.generation.quarantined["sales"]
    with served(running, **{SECRET: "sk-1"}) as live:
        assert sorted(live.server.app.generation.graphs) == ["people", "sales"]


def test_servers_take_only_folders_of_external_blobs_that_are_safe_for_them(running: Fleet):
    own = running.directory.as_uri()
    safe = "{ base: 's3://assets/x', scope: server_safe }"
    allow = f"{safe}, {{ base: '{own}', scope: embedded_only }}"
    blobs = f"schema: sales.pg, external_blobs: {{ allow: [{allow}] }}"
    running.edit("cluster.yaml", "schema: sales.pg", blobs)
    running.applied()
    graphs = {each.graph_id: each for each in read_applied(str(running.directory)).graphs}
    assert graphs["sales"].external_blobs == ("s3://assets/x",)


def test_checks_of_change_requests_are_served(running: Fleet):
    running.write(checks_yaml="checks: [{ name: some, query: everybody, expect: nonempty }]\n")
    running.edit("cluster.yaml", "queries: queries/", "queries: queries/\n    checks: checks.yaml")
    running.applied()
    with served(running) as live:
        (check,) = live.server.app.generation.graphs["people"].checks
        assert (check.name, check.query) == ("some", "everybody")


def test_a_watching_server_notices_another_revision(running: Fleet):
    with served(running) as live:
        from omnigraph.server.generation import fingerprint

        before = fingerprint(live.server.config)
        running.write(base_yaml=POLICY.replace("act-bo", "act-cy"))
        assert fingerprint(live.server.config) == before
        running.applied()
        assert fingerprint(live.server.config) != before


def test_maintenance_finds_a_graph_by_the_ledger_alone(running: Fleet):
    for kind in ("query", "policy"):
        blob_of(running, kind).unlink()
    place = str(running.directory)
    assert open_graph(applied_graph_uri(place, "people")).uri == str(running.root("people"))
    with pytest.raises(ClusterRefused) as several:
        applied_graph_uri(place)
    assert "people, sales" in str(several.value.hint)
    with pytest.raises(ClusterRefused) as unknown:
        applied_graph_uri(place, "zoo")
    assert unknown.value.diagnostic == "graph_not_applied"
    assert "people, sales" in str(unknown.value.hint)


@pytest.mark.slow
def test_workers_of_a_cluster_switch_revisions_together_and_end_with_their_supervisor(
    running: Fleet, tmp_path: Path
):
    tokens = tmp_path / "tokens.json"
    tokens.write_text(json.dumps(TOKENS), encoding="utf-8")
    tokens.chmod(0o600)
    headers = {"Authorization": f"Bearer {TOKENS['act-ana']}"}

    def names_over_connections(url: str) -> set[tuple[str, ...]]:
        """What is served, asked over new connections, so that both workers answer."""
        found = set()
        for _ in range(8):
            answer = httpx.get(f"{url}/graphs/people/queries", headers=headers)
            found.add(tuple(each["name"] for each in answer.json()["queries"]))
        return found

    arguments = ("--cluster", str(running.directory), "--workers", "2")
    with started(*arguments, **{TOKENS_FILE: str(tokens)}) as server:
        workers = pids(server)
        assert len(workers) == 2
        assert names_over_connections(server.url) == {("everybody",)}
        running.write(queries__more_gq=QUERIES.replace("everybody", "more"))
        running.applied()
        server.send(signal.SIGHUP)
        wait_until(
            lambda: names_over_connections(server.url) == {("everybody", "more")},
            "both workers serve what was applied",
        )
        server.send(signal.SIGKILL)
        wait_until(
            lambda: not any(Path(f"/proc/{pid}").exists() for pid in workers),
            "the workers end with their supervisor",
        )
        with pytest.raises(httpx.TransportError):
            httpx.get(f"{server.url}/healthz")
