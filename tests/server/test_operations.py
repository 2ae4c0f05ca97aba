"""Logs, metrics, browsers of other origins, and reloading."""

from __future__ import annotations

import logging
import threading
from pathlib import Path

import httpx
import orjson
import pytest

from omnigraph.errors import WriterBusy
from omnigraph.graph import AUTO_OPTIMIZE_VARIABLE, Graph
from omnigraph.server.auth import TOKENS_FILE
from omnigraph.server.config import GraphSpec, ServerConfig
from omnigraph.server.generation import build, fingerprint
from omnigraph.server.logs import (
    KIND_LINES_MAX,
    KIND_SECONDS,
    JsonFormatter,
    KindLimit,
    TextFormatter,
)
from tests.server.live import ADD, PEOPLE, POLICY, TOKENS, Live, bearer, serving, with_tokens

ORIGIN = "https://app.example.com"

# --- logs -----------------------------------------------------------------------------------------


def record(event: str, **fields: object) -> logging.LogRecord:
    made = logging.LogRecord("omnigraph.server", logging.INFO, "", 0, event, (), None)
    made.fields = fields
    return made


def test_text_logs_keep_one_event_on_one_line():
    line = TextFormatter().format(record("request", branch="a\nb c", status=200, actor_id=None))
    assert line.endswith(' info request branch="a\\nb c" status=200')
    assert "\n" not in line


def test_json_logs_are_one_object_a_line():
    line = JsonFormatter().format(record("request", branch="a\nb", status=200))
    document = orjson.loads(line)
    assert (document["event"], document["branch"], document["status"]) == ("request", "a\nb", 200)
    assert "\n" not in line


def test_requests_decisions_and_invocations_are_logged_without_secrets(
    guarded: Live, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.DEBUG)
    ana = guarded.client("act-ana")
    secret = "a-name-nobody-should-read"
    ana.post("/queries/sign_up", json={"params": {"name": secret}}).raise_for_status()
    ana.post("/mutate", json={"query": ADD, "params": {"name": secret, "x": 1}})
    httpx.get(
        f"{guarded.url}/graphs/default/schema?token=query-secret",
        headers={"Authorization": "Bearer wrong-token-0815"},
    )
    httpx.post(
        f"{guarded.url}/graphs/default/query", headers=bearer("act-ana"), content=b'{"wrong": 1}'
    )
    ours = [each for each in caplog.records if each.name.startswith(("omnigraph", "uvicorn"))]
    lines = [*guarded.events, *(JsonFormatter().format(each) for each in ours)]
    events = [orjson.loads(line) for line in guarded.events]
    decision = next(
        e for e in events if e["event"] == "policy decision" and e["action"] == "change"
    )
    assert decision["actor_id"] == "act-ana"
    assert (decision["allowed"], decision["matched_rule_id"]) == (True, "admins-edit")
    assert decision["branch"] == "main" and decision["request_id"]
    called = next(event for event in events if event["event"] == "stored query")
    assert (called["query_name"], called["mutation"]) == ("sign_up", True)
    request = next(event for event in events if event["event"] == "request")
    assert {"method", "route", "status", "duration_ms", "request_id"} <= request.keys()
    everything = "\n".join([*lines, *(TextFormatter().format(each) for each in ours)])
    for hidden in (*TOKENS.values(), secret, "query-secret", "wrong-token-0815"):
        assert hidden not in everything


def test_no_error_repeats_a_token(guarded: Live):
    token = TOKENS["act-ana"]
    answers = [
        httpx.get(f"{guarded.url}/graphs", headers={"Authorization": f"Bearer {token}x"}),
        httpx.get(f"{guarded.url}/graphs", headers={"Authorization": f"Basic {token}"}),
        guarded.client("act-ana").get("/nowhere"),
        guarded.client("act-ana").post("/query", json={"query": "broken"}),
    ]
    assert not any(token in answer.text + str(answer.headers) for answer in answers)


# --- metrics --------------------------------------------------------------------------------------


def test_metrics_need_any_valid_token_and_count_by_route(spec: GraphSpec):
    with serving(spec, environment=with_tokens(), metrics=True) as live:
        live.client("act-cy").post("/query", json={"query": PEOPLE}).raise_for_status()
        live.client("act-cy").post("/mutate", json={"query": ADD})
        assert httpx.get(f"{live.url}/metrics").status_code == 401
        page = httpx.get(f"{live.url}/metrics", headers=bearer("act-cy")).text
    route = 'route="/graphs/{graph_id}/query",status="200"'
    assert f'omnigraph_http_requests_total{{method="POST",{route}}} 1.0' in page
    for name in (
        "omnigraph_http_request_seconds_bucket",
        'omnigraph_rejections_total{reason="denied"} 1.0',
        "omnigraph_writes_in_flight 0.0",
        "omnigraph_export_slots_taken 0.0",
        "omnigraph_graphs_ready 1.0",
        "omnigraph_graphs_quarantined 0.0",
        "omnigraph_reload_generation 1.0",
    ):
        assert name in page


def test_metrics_are_off_unless_asked_for_and_open_on_their_own_address(spec: GraphSpec):
    with serving(spec, environment=with_tokens(), metrics_bind="127.0.0.1:0") as live:
        assert httpx.get(f"{live.url}/metrics").status_code == 404
        beside = f"http://{live.server.metrics_address}"
        assert "omnigraph_graphs_ready" in httpx.get(f"{beside}/metrics").text
        assert httpx.get(f"{beside}/graphs").status_code == 404


def test_metrics_without_a_token_are_for_requests_to_this_machine(spec: GraphSpec):
    """A page of another site that points its name here sends that name."""
    with serving(
        spec,
        environment=with_tokens(),
        metrics_bind="127.0.0.1:0",
        allowed_hosts=("prometheus.internal",),
    ) as live:
        address = str(live.server.metrics_address)

        def asked(host: str) -> int:
            return httpx.get(f"http://{address}/metrics", headers={"Host": host}).status_code

        assert [asked(host) for host in ("evil.example", "127.0.0.1.evil.example")] == [403, 403]
        assert [asked(host) for host in (address, "localhost", "prometheus.internal")] == [200] * 3


# --- browsers -------------------------------------------------------------------------------------


def test_a_listed_origin_may_ask_and_read(spec: GraphSpec):
    with serving(spec, environment=with_tokens(), cors_origins=(ORIGIN,)) as live:
        url = f"{live.url}/graphs/default/query"
        preflight = {"Origin": ORIGIN, "Access-Control-Request-Method": "POST"}
        asked = httpx.options(url, headers=preflight)
        assert asked.status_code == 204
        assert asked.headers["access-control-allow-origin"] == ORIGIN
        assert "POST" in asked.headers["access-control-allow-methods"]
        assert "Authorization" in asked.headers["access-control-allow-headers"]
        assert "access-control-allow-credentials" not in asked.headers
        answer = httpx.post(
            url, json={"query": PEOPLE}, headers={"Origin": ORIGIN, **bearer("act-ana")}
        )
        assert answer.headers["access-control-allow-origin"] == ORIGIN
        exposed = answer.headers["access-control-expose-headers"]
        for name in ("ETag", "Content-Range", "Omnigraph-Snapshot-Id", "X-Request-Id"):
            assert name in exposed
        refused = httpx.post(url, json={"query": PEOPLE}, headers={"Origin": ORIGIN})
        assert refused.status_code == 401
        assert refused.headers["access-control-allow-origin"] == ORIGIN


@pytest.mark.parametrize("origin", ["https://evil.example.com", ORIGIN + ".evil", "null", "*"])
def test_another_origin_is_not_let_in(spec: GraphSpec, origin: str):
    with serving(spec, environment=with_tokens(), cors_origins=(ORIGIN,)) as live:
        url = f"{live.url}/graphs/default/schema"
        asked = httpx.options(
            url, headers={"Origin": origin, "Access-Control-Request-Method": "GET"}
        )
        assert asked.status_code == 400
        read = httpx.get(url, headers={"Origin": origin, **bearer("act-ana")})
        for answer in (asked, read):
            assert "access-control-allow-origin" not in answer.headers
            assert answer.headers["vary"] == "Origin"


def test_without_origins_there_is_no_cors(open_server: Live):
    answer = httpx.get(f"{open_server.url}/healthz", headers={"Origin": ORIGIN})
    assert not any(name.startswith("access-control") for name in answer.headers)


def test_without_origins_a_preflight_is_a_method_that_no_path_has(spec: GraphSpec):
    with serving(spec, environment=with_tokens()) as live:
        asked = httpx.options(
            f"{live.url}/graphs/default/schema",
            headers={"Origin": ORIGIN, "Access-Control-Request-Method": "GET"},
        )
    assert (asked.status_code, asked.headers["allow"]) == (405, "GET")
    assert not any(name.startswith("access-control") for name in asked.headers)


def test_logs_of_one_kind_are_limited_and_say_what_was_held_back():
    now = [0.0]
    limit = KindLimit(lambda: now[0])
    passed = [limit.filter(record("request refused", status=503)) for _ in range(100)]
    assert passed == [True] * KIND_LINES_MAX + [False] * (100 - KIND_LINES_MAX)
    assert limit.filter(record("another kind"))
    now[0] = KIND_SECONDS
    later = record("request refused", status=503)
    assert limit.filter(later)
    assert "held_back=90" in TextFormatter().format(later)


def test_a_refused_request_logs_no_traceback(
    spec: GraphSpec, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    def refused(*_args: object, **_options: object) -> None:
        raise WriterBusy("main", "another", 10)

    monkeypatch.setattr(Graph, "mutate", refused)
    with serving(spec) as live, caplog.at_level(logging.WARNING, "omnigraph.server"):
        body = {"query": ADD, "params": {"name": "x"}}
        assert live.client().post("/mutate", json=body).status_code == 503
    (line,) = [each for each in caplog.records if each.getMessage() == "request refused"]
    assert line.exc_info is None


# --- reloading ------------------------------------------------------------------------------------


@pytest.fixture
def files(spec: GraphSpec, tmp_path: Path) -> tuple[GraphSpec, dict[str, str]]:
    policy, tokens = tmp_path / "policy.yaml", tmp_path / "tokens.json"
    policy.write_text(POLICY)
    tokens.write_bytes(orjson.dumps(TOKENS))
    tokens.chmod(0o600)
    return GraphSpec("default", spec.uri, spec.queries, policy), {TOKENS_FILE: str(tokens)}


def test_c_srv_046_a_reload_swaps_queries_policy_and_tokens_at_once(
    files: tuple[GraphSpec, dict[str, str]],
):
    ruled, environment = files
    assert ruled.policy is not None
    with serving(ruled, environment=environment) as live:
        ana = live.client("act-ana")
        before = live.server.app.generation
        (ruled.queries[0] / "more.gq").write_text(
            "query cities() { match { $c: City } return { $c.name } }"
        )
        ruled.policy.write_text(
            POLICY.replace("team: [act-ana, act-bo]", "team: [act-ana, act-new]")
        )
        Path(environment[TOKENS_FILE]).write_bytes(
            orjson.dumps({"act-ana": TOKENS["act-ana"], "act-new": "brand-new-token"})
        )
        assert ana.post("/queries/cities").status_code == 404
        assert live.call(live.server.reloader.reload) is True
        assert live.server.app.generation.number == before.number + 1
        assert ana.post("/queries/cities").json()["rows"] == [{"c.name": "Rome"}]
        new = {"Authorization": "Bearer brand-new-token"}
        assert httpx.get(f"{live.url}/graphs/default/schema", headers=new).status_code == 200
        assert live.client("act-bo").get("/schema").status_code == 401


@pytest.mark.parametrize("broken", ["query", "policy", "tokens"])
def test_c_srv_046_a_broken_revision_keeps_the_old_one(
    files: tuple[GraphSpec, dict[str, str]], broken: str, caplog: pytest.LogCaptureFixture
):
    ruled, environment = files
    assert ruled.policy is not None
    with serving(ruled, environment=environment) as live:
        before = live.server.app.generation
        (ruled.queries[0] / "more.gq").write_text(
            "query cities() { match { $c: City } return { $c.name } }"
        )
        match broken:
            case "query":
                (ruled.queries[0] / "bad.gq").write_text("query bad( {")
            case "policy":
                ruled.policy.write_text("version: 1\nrulez: []\n")
            case "tokens":
                Path(environment[TOKENS_FILE]).write_text('{"act-ana": "token-of-ana-0001"')
        assert live.call(live.server.reloader.reload) is False
        assert live.server.app.generation is before
        ana = live.client("act-ana")
        assert ana.post("/queries/everybody").status_code == 200
        assert ana.post("/queries/cities").status_code == 404
    assert "token-of-ana-0001" not in caplog.text


def test_c_srv_046_a_request_keeps_the_generation_it_began_with(
    files: tuple[GraphSpec, dict[str, str]],
):
    ruled, environment = files
    with serving(ruled, environment=environment) as live:
        graph, found = live.graph(), []

        def call() -> None:
            found.append(
                live.client("act-ana").post("/queries/sign_up", json={"params": {"name": "cy"}})
            )

        with graph._kernel.gates.write(["main"]):
            thread = threading.Thread(target=call)
            thread.start()
            while not live.server.services.admission.inflight:
                pass
            (ruled.queries[0] / "people.gq").unlink()
            assert live.call(live.server.reloader.reload) is True
            assert live.client("act-ana").post("/queries/sign_up").status_code == 404
        thread.join()
        assert found[0].status_code == 200


def test_an_unchanged_policy_keeps_the_open_handle(files: tuple[GraphSpec, dict[str, str]]):
    ruled, environment = files
    config = ServerConfig((ruled,), environment=environment)
    first = build(config)
    second = build(config, first)
    assert second.graphs["default"].graph is first.graphs["default"].graph
    assert ruled.policy is not None
    ruled.policy.write_text(POLICY + "# changed\n")
    third = build(config, second)
    assert third.graphs["default"].graph is not first.graphs["default"].graph


def test_a_server_looks_after_its_graphs_unless_it_is_told_not_to(
    files: tuple[GraphSpec, dict[str, str]], monkeypatch: pytest.MonkeyPatch
):
    ruled, environment = files
    kept = build(ServerConfig((ruled,), environment=environment)).graphs["default"].graph
    assert kept.auto_optimize is not None
    kept.close()
    monkeypatch.setenv(AUTO_OPTIMIZE_VARIABLE, "off")
    told = {**environment, AUTO_OPTIMIZE_VARIABLE: "off"}
    assert (
        build(ServerConfig((ruled,), environment=told)).graphs["default"].graph.auto_optimize
        is None
    )


def test_a_changed_file_is_noticed(files: tuple[GraphSpec, dict[str, str]]):
    ruled, environment = files
    config = ServerConfig((ruled,), environment=environment)
    seen = [fingerprint(config)]
    (ruled.queries[0] / "more.gq").write_text("query q() { match { $c: City } return { $c.name } }")
    seen.append(fingerprint(config))
    Path(environment[TOKENS_FILE]).write_text("{}")
    seen.append(fingerprint(config))
    assert ruled.policy is not None
    ruled.policy.unlink()
    seen.append(fingerprint(config))
    assert len(set(seen)) == 4
