"""A server without tokens answers this machine alone, and no page of another site."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from omnigraph.server.config import GraphSpec
from tests.server.live import ADD, PEOPLE, QUERIES, Live, new_graph, serving, with_tokens

JSON = {"Content-Type": "application/json"}
ROUTES = [
    ("GET", "/healthz"),
    ("GET", "/readyz"),
    ("GET", "/openapi.json"),
    ("GET", "/graphs/default/schema"),
    ("POST", "/graphs/default/query"),
    ("POST", "/graphs/default/mutate"),
    ("POST", "/mcp"),
    ("POST", "/graphs/default/mcp"),
    ("GET", "/nowhere"),
]


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    folder = tmp_path_factory.mktemp("open")
    new_graph(folder / "team.omni")
    (folder / "queries.gq").write_text(QUERIES)
    spec = GraphSpec("default", str(folder / "team.omni"), (folder / "queries.gq",))
    with serving(spec, mcp=True, cors_origins=("https://app.example",)) as live:
        yield live


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "10.0.0.1", "localhost.evil", ""],
)
def test_c_acc_011_a_host_that_is_not_this_machine_is_refused_on_every_route(live: Live, host: str):
    for method, path in ROUTES:
        answer = httpx.request(method, live.url + path, headers={**JSON, "Host": host})
        assert answer.status_code == 403, (method, path)
        assert answer.json()["code"] == "forbidden"


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost:1", "LOCALHOST", "[::1]:8080", "127.8.9.1"]
)
def test_every_name_of_this_machine_is_a_host(live: Live, host: str):
    assert httpx.get(f"{live.url}/healthz", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://localhost:3000", ""])
def test_c_acc_011_an_origin_that_is_not_listed_is_refused_on_every_route(live: Live, origin: str):
    for method, path in ROUTES:
        answer = httpx.request(method, live.url + path, headers={**JSON, "Origin": origin})
        assert answer.status_code == 403, (method, path)


def test_a_listed_origin_and_the_server_itself_may_ask(live: Live):
    for origin in ("https://app.example", live.url):
        answer = httpx.post(
            f"{live.url}/graphs/default/query", json={"query": PEOPLE}, headers={"Origin": origin}
        )
        assert answer.status_code == 200


@pytest.mark.parametrize("media", [None, "text/plain", "application/x-www-form-urlencoded"])
@pytest.mark.parametrize(
    "path",
    ["/graphs/default/query", "/graphs/default/mutate", "/graphs/default/mcp", "/mcp"],
)
def test_a_post_without_a_json_type_is_415(live: Live, path: str, media: str | None):
    headers = {} if media is None else {"Content-Type": media}
    answer = httpx.post(live.url + path, content=b'{"query": "q"}', headers=headers)
    assert answer.status_code == 415
    assert answer.json()["error_code"] == "unsupported_media"


def test_a_post_without_a_body_needs_the_type_as_well(live: Live):
    url = f"{live.url}/graphs/default/queries/everybody"
    assert httpx.post(url).status_code == 415
    assert httpx.post(url, headers=JSON).status_code == 200


def test_with_tokens_neither_host_nor_type_matters(spec: GraphSpec):
    with serving(spec, environment=with_tokens(), waits=False) as live:
        ana = live.client("act-ana")
        elsewhere = {"Host": "graph.example", "Origin": "https://other.example"}
        body = b'{"query": "%s"}' % PEOPLE.encode()
        assert ana.post("/query", content=body, headers=elsewhere).status_code == 200
        assert ana.post("/mutate", json={"query": ADD}, headers=elsewhere).status_code == 403


def test_a_host_can_be_allowed(spec: GraphSpec):
    with serving(spec, waits=False, allowed_hosts=("graph.internal",)) as live:
        for host, status in (("graph.internal:8080", 200), ("other.internal", 403)):
            answer = httpx.get(f"{live.url}/healthz", headers={"Host": host})
            assert answer.status_code == status
