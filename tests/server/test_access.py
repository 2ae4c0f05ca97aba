"""Who gets in, and what they may do."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

import omnigraph
from omnigraph.errors import InputError, PolicyDenied, install_command
from omnigraph.server.auth import (
    ONE_TOKEN,
    TOKENS_AWS_SECRET,
    TOKENS_FILE,
    TOKENS_JSON,
    RuntimeState,
    TokenTable,
    bearer_token,
    read_tokens,
)
from omnigraph.server.config import GraphSpec, ServerConfig
from omnigraph.server.generation import build
from tests.server.live import (
    ADD,
    PEOPLE,
    POLICY,
    SERVER_POLICY,
    TOKENS,
    UNPROTECTED_ONLY,
    Live,
    bearer,
    new_graph,
    serving,
    with_tokens,
)


def state_of(spec: GraphSpec, environment: dict[str, str], *, open_: bool) -> RuntimeState:
    config = ServerConfig((spec,), unauthenticated=open_, environment=environment)
    return build(config).state


def test_c_srv_003_all_five_runtime_states_hold(spec: GraphSpec, tmp_path: Path):
    policy = tmp_path / "policy.yaml"
    policy.write_text(POLICY)
    ruled = GraphSpec("default", spec.uri, (), policy)
    with pytest.raises(InputError, match="neither tokens nor a policy"):
        state_of(spec, {}, open_=False)
    assert state_of(spec, {}, open_=True) is RuntimeState.OPEN
    for open_ in (False, True):
        assert state_of(spec, with_tokens(), open_=open_) is RuntimeState.DEFAULT_DENY
        with pytest.raises(InputError, match="no tokens"):
            state_of(ruled, {}, open_=open_)
        assert state_of(ruled, with_tokens(), open_=open_) is RuntimeState.POLICY_ENABLED


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "Bearer",
        "Basic dXNlcjpwYXNz",
        "token-of-ana-0001",
        "Bearer token-of-ana-0001x",
        "Bearer token-of-ana-000",
        "Bearer token-of-ana-0001 token-of-bo-0002",
    ],
)
def test_c_srv_006_missing_malformed_and_unknown_tokens_are_401(guarded: Live, header: str | None):
    headers = {} if header is None else {"Authorization": header}
    for path in ("/graphs", "/graphs/default/schema", "/graphs/unknown/schema"):
        answer = httpx.get(guarded.url + path, headers=headers)
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"] == "Bearer"
        assert answer.json()["code"] == "unauthorized"


def test_two_authorization_headers_are_401(guarded: Live):
    twice = [("Authorization", f"Bearer {TOKENS[actor]}") for actor in ("act-ana", "act-bo")]
    assert httpx.get(f"{guarded.url}/graphs", headers=twice).status_code == 401


@pytest.mark.parametrize("scheme", ["bearer", "BEARER", "Bearer  "])
def test_the_scheme_is_case_insensitive_and_space_does_not_count(guarded: Live, scheme: str):
    headers = {"Authorization": f"{scheme} {TOKENS['act-ana']}"}
    assert httpx.get(f"{guarded.url}/graphs/default/schema", headers=headers).status_code == 200


def test_c_srv_007_no_header_body_or_parameter_changes_the_actor(guarded: Live):
    bo = guarded.client("act-bo")
    spoofed = {"X-Actor-Id": "act-ana", "X-Forwarded-User": "act-ana", "Actor-Id": "act-ana"}
    bo.post("/branches", json={"name": "side"}, headers=spoofed).raise_for_status()
    body = {"query": ADD, "params": {"name": "cy"}, "branch": "side"}
    written = bo.post("/mutate", json=body, headers=spoofed).json()
    assert written["actor_id"] == "act-bo"
    assert written["commit"]["actor_id"] == "act-bo"
    denied = bo.post("/mutate", json={**body, "branch": "main"}, headers=spoofed)
    assert denied.status_code == 403
    assert bo.post("/mutate", json={**body, "actor_id": "act-ana"}).status_code == 400
    assert bo.post("/mutate?actor_id=act-ana", json=body).status_code == 400


def test_c_srv_008_a_repeated_or_blank_actor_or_token_fails_boot():
    bad = [
        {TOKENS_JSON: '{"a": "s3cret-1", "b": "s3cret-1"}'},
        {TOKENS_JSON: '{"a": "s3cret-1", "a": "s3cret-2"}'},
        {TOKENS_JSON: '{"a": " "}'},
        {TOKENS_JSON: '{" ": "s3cret-1"}'},
        {TOKENS_JSON: '{"default": "s3cret-1"}', ONE_TOKEN: "s3cret-2"},
        {TOKENS_JSON: '{"a": "s3cret-1"}', ONE_TOKEN: " s3cret-1 "},
        {TOKENS_JSON: '["s3cret-1"]'},
        {TOKENS_JSON: '{"a": 1}'},
        {TOKENS_JSON: '{"a": "s3cret-1", '},
        {TOKENS_FILE: "/nowhere/tokens.json"},
        {TOKENS_JSON: '{"omnigraph:recovery": "s3cret-1"}'},
    ]
    for environment in bad:
        with pytest.raises(InputError) as caught:
            read_tokens(environment)
        assert "s3cret" not in caught.value.render()


def test_c_srv_008_the_aws_secret_without_its_library_fails_boot_and_never_falls_back(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setitem(sys.modules, "boto3", None)
    with pytest.raises(InputError, match="not installed") as caught:
        read_tokens({TOKENS_AWS_SECRET: "team/tokens", ONE_TOKEN: "one"})
    assert install_command("aws") in str(caught.value.hint)


def test_tokens_come_from_a_secret_of_aws_alone(monkeypatch: pytest.MonkeyPatch):
    import boto3  # type: ignore[import-untyped]
    from moto import mock_aws

    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    environment = {
        TOKENS_AWS_SECRET: "team/tokens",
        ONE_TOKEN: "the-one",
        "AWS_REGION": "eu-central-1",
    }
    with mock_aws():
        with pytest.raises(InputError, match="cannot be read"):
            read_tokens(environment)
        secrets = boto3.client("secretsmanager", region_name="eu-central-1")
        secrets.create_secret(Name="team/tokens", SecretString='{"act-aws": "from-aws"}')
        table = read_tokens(environment)
    assert table.actor_of("from-aws") == "act-aws"
    assert table.actor_of("the-one") is None
    assert table.source == TOKENS_AWS_SECRET


@pytest.mark.parametrize("mode", [0o644, 0o604, 0o602, 0o620, 0o777])
def test_a_file_of_tokens_that_others_can_read_or_change_is_refused(tmp_path: Path, mode: int):
    file = tmp_path / "tokens.json"
    file.write_text('{"act-file": "from-file"}')
    file.chmod(mode)
    with pytest.raises(InputError, match=f"{mode:04o}") as caught:
        read_tokens({TOKENS_FILE: str(file)})
    assert "chmod 600" in str(caught.value.hint)
    for tight in (0o600, 0o400, 0o440):
        file.chmod(tight)
        assert read_tokens({TOKENS_FILE: str(file)}).actor_of("from-file") == "act-file"


def test_tokens_come_from_the_one_variable_and_from_file_or_text(tmp_path: Path):
    file = tmp_path / "tokens.json"
    file.write_text('{"act-file": "from-file"}')
    file.chmod(0o600)
    table = read_tokens(
        {ONE_TOKEN: "the-one", TOKENS_FILE: str(file), TOKENS_JSON: '{"act-text": "from-text"}'}
    )
    assert table.actor_of("the-one") == "default"
    assert table.actor_of("from-file") == "act-file"
    assert table.actor_of("from-text") is None
    assert read_tokens({TOKENS_JSON: '{"act-text": " from-text "}'}).actor_of("from-text")
    assert len(read_tokens({})) == 0


def test_a_token_table_keeps_no_plain_token():
    table = TokenTable([("act-ana", "very-secret-token")])
    assert "very-secret-token" not in repr(vars(table))
    assert bearer_token(b"Bearer  very-secret-token ") == "very-secret-token"


def test_tokens_and_headers_may_hold_any_bytes(spec: GraphSpec):
    environment = {TOKENS_JSON: '{"act-ana": "schlüssel-ß-9"}'}
    with serving(spec, environment=environment) as live:
        url = f"{live.url}/graphs/default/schema"
        for sent, status in (("schlüssel-ß-9".encode(), 200), (b"\xff\xfe", 401)):
            answer = httpx.get(url, headers={b"Authorization": b"Bearer " + sent})
            assert answer.status_code == status


def test_c_srv_009_graphs_is_403_without_a_server_policy_even_when_open(
    open_server: Live, spec: GraphSpec, tmp_path: Path
):
    answer = open_server.client(graph_id=None).get("/graphs")
    assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")
    policy = tmp_path / "policy.yaml"
    policy.write_text(POLICY)
    ruled = GraphSpec("default", spec.uri, (), policy)
    with serving(ruled, environment=with_tokens()) as live:
        assert live.client("act-ana", None).get("/graphs").status_code == 403


def test_graphs_are_listed_to_whom_the_server_policy_allows(guarded: Live, spec: GraphSpec):
    listed = guarded.client("act-ana", None).get("/graphs")
    assert listed.json() == {
        "graphs": [{"graph_id": "default", "uri": f"{guarded.url}/graphs/default"}],
    }
    assert guarded.client("act-bo", None).get("/graphs").status_code == 403


def test_c_srv_010_tokens_without_a_policy_may_read_and_nothing_else(spec: GraphSpec):
    with serving(spec, environment=with_tokens()) as live:
        ana = live.client("act-ana")
        assert ana.post("/query", json={"query": PEOPLE}).status_code == 200
        assert ana.get("/queries").status_code == 200
        refused = [
            ana.post("/mutate", json={"query": ADD, "params": {"name": "cy"}}),
            ana.post("/load", json={"data": "{}"}),
            ana.post("/branches", json={"name": "side"}),
            ana.delete("/branches/side"),
            ana.post("/branches/merge", json={"source": "side"}),
            ana.post("/schema/apply", json={"schema_source": "node A { n: String @key }"}),
            ana.post("/export", json={}),
            ana.post("/changes/baseline", json={}),
        ]
        assert [answer.status_code for answer in refused] == [403] * len(refused)
        # Without a policy no actor holds `invoke_query`, so no stored query can be called.
        assert ana.post("/queries/everybody").status_code == 404
        assert ana.get("/branches").json() == {"branches": ["main"]}


def test_a_graph_without_a_policy_beside_one_with_it_may_only_be_read(
    spec: GraphSpec, tmp_path: Path
):
    policy = tmp_path / "policy.yaml"
    policy.write_text(POLICY)
    new_graph(tmp_path / "plain.omni")
    graphs = (
        GraphSpec("ruled", spec.uri, (), policy),
        GraphSpec("plain", str(tmp_path / "plain.omni")),
    )
    body = {"query": ADD, "params": {"name": "cy"}}
    with serving(*graphs, environment=with_tokens()) as live:
        assert live.client("act-ana", "ruled").post("/mutate", json=body).status_code == 200
        assert live.client("act-ana", "plain").post("/mutate", json=body).status_code == 403
        assert live.client("act-cy", "plain").get("/schema").status_code == 200
        assert live.client("act-cy", "ruled").get("/schema").status_code == 403


def test_c_srv_033_a_padded_branch_name_cannot_bypass_policy(guarded: Live):
    bo = guarded.client("act-bo")
    for padded in (" main", "main ", "\tmain\n"):
        body = {"query": ADD, "params": {"name": "cy"}, "branch": padded}
        assert bo.post("/mutate", json=body).status_code == 403
        ndjson = bo.post(
            "/load/ndjson",
            params={"branch": padded},
            content=b"",
            headers={"Content-Type": "application/x-ndjson"},
        )
        assert ndjson.status_code == 403
        assert bo.delete("/branches/%20main%09").status_code == 403
    assert guarded.graph().list_branches() == ["main"]
    blank = bo.post("/mutate", json={"query": ADD, "branch": " "})
    assert blank.status_code == 400


def test_c_srv_042_a_cluster_owns_the_schema_and_says_so_after_401_and_403(
    spec: GraphSpec, tmp_path: Path
):
    policy = tmp_path / "policy.yaml"
    policy.write_text(POLICY)
    ruled = GraphSpec("default", spec.uri, (), policy)
    body = {"schema_source": "node A { n: String @key }"}
    with serving(ruled, environment=with_tokens(), applies_schemas=False) as live:
        answers = [
            live.client().post("/schema/apply", json=body),
            live.client("act-bo").post("/schema/apply", json=body),
            live.client("act-ana").post("/schema/apply", json=body),
        ]
        assert [answer.status_code for answer in answers] == [401, 403, 409]
        assert "cluster apply" in answers[2].json()["hint"]


def test_a_store_boot_applies_schemas(guarded: Live):
    from tests.server.live import SCHEMA

    wider = SCHEMA + "node Dog { name: String @key }\n"
    ana = guarded.client("act-ana")
    applied = ana.post("/schema/apply", json={"schema_source": wider}).json()
    assert (applied["applied"], applied["supported"], applied["step_count"]) == (True, True, 1)
    assert ana.get("/schema").json() == {"schema_source": wider}
    again = ana.post("/schema/apply", json={"schema_source": wider}).json()
    assert (again["applied"], again["step_count"]) == (False, 0)


def test_c_pol_037_a_snapshot_is_as_readable_as_its_branch(spec: GraphSpec, tmp_path: Path):
    policy = tmp_path / "policy.yaml"
    policy.write_text(
        "version: 1\n"
        "groups: { team: [act-ana], all: [act-ana, act-bo] }\n"
        "protected_branches: [main]\n"
        "rules:\n"
        "  - id: side\n"
        "    allow: { actors: { group: all }, actions: [read], branch_scope: unprotected }\n"
        "  - id: main\n"
        "    allow: { actors: { group: team }, actions: [read], branch_scope: any }\n"
    )
    graph = omnigraph.open(spec.uri)
    graph.create_branch("side")
    graph.mutate(ADD, {"name": "cy"}, branch="side")
    on_side = graph.list_commits("side")[0].graph_commit_id
    on_main = graph.list_commits("main")[0].graph_commit_id
    with serving(GraphSpec("default", spec.uri, (), policy), environment=with_tokens()) as live:
        ana, bo = live.client("act-ana"), live.client("act-bo")
        for snapshot, expected in ((on_side, (200, 200)), (on_main, (200, 403))):
            body = {"query": PEOPLE, "snapshot": snapshot}
            answers = [client.post("/query", json=body) for client in (ana, bo)]
            assert tuple(answer.status_code for answer in answers) == expected
        unknown = {"query": PEOPLE, "snapshot": "01K9WR3C5T8M2B7XQ4ZJ6V0NHD"}
        assert ana.post("/query", json=unknown).status_code == 404
        assert bo.post("/query", json=unknown).status_code == 403


def test_c_pol_036_an_omitted_commit_list_branch_is_authorized_as_main(
    spec: GraphSpec, tmp_path: Path
):
    policy = tmp_path / "policy.yaml"
    policy.write_text(UNPROTECTED_ONLY)
    omnigraph.open(spec.uri).create_branch("side")
    with serving(GraphSpec("default", spec.uri, (), policy), environment=with_tokens()) as live:
        bo = live.client("act-bo")
        assert bo.get("/commits").status_code == 403
        assert bo.get("/commits", params={"branch": "side"}).status_code == 200


@pytest.mark.parametrize(
    ("actor", "branch"),
    [("act-ana", "main"), ("act-bo", "main"), ("act-bo", "side"), ("act-cy", "side")],
)
def test_c_pol_031_engine_and_http_decide_alike_about_changes_and_merges(
    guarded: Live, actor: str, branch: str
):
    engine = guarded.graph()  # with the compiled policy of the server
    engine.create_branch("side", actor="act-ana")

    def embedded(work: Callable[[], object]) -> tuple[bool, str | None]:
        try:
            work()
        except PolicyDenied as denied:
            return False, denied.message
        return True, None

    def served(path: str, body: object) -> tuple[bool, str | None]:
        answer = guarded.client(actor).post(path, json=body)
        assert answer.status_code in (200, 403), answer.text
        return answer.status_code == 200, answer.json().get("error")

    body = {"query": ADD, "params": {"name": "http"}, "branch": branch}
    change = embedded(lambda: engine.mutate(ADD, {"name": "sdk"}, branch=branch, actor=actor))
    assert served("/mutate", body) == change
    merge = embedded(lambda: engine.merge_branch("side", "main", actor=actor))
    assert served("/branches/merge", {"source": "side"}) == merge
    assert change[0] is (actor == "act-ana" or (actor == "act-bo" and branch == "side"))
    assert merge[0] is (actor != "act-cy")


def test_the_policy_of_a_server_is_refused_for_a_graph(spec: GraphSpec, tmp_path: Path):
    policy = tmp_path / "server.yaml"
    policy.write_text(SERVER_POLICY)
    config = ServerConfig((GraphSpec("default", spec.uri, (), policy),), environment=with_tokens())
    with pytest.raises(InputError, match="graph_list"):
        build(config)


def test_health_needs_no_token(guarded: Live):
    for path in ("/healthz", "/graphs/default/healthz", "/graphs/unknown/healthz", "/readyz"):
        assert httpx.get(guarded.url + path).status_code == 200
    assert bearer("act-ana")["Authorization"].startswith("Bearer ")
