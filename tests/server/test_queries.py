"""Reading and writing with queries that come with the request."""

from __future__ import annotations

import httpx
import pyarrow as pa
import pytest

from omnigraph.model.tables import ARROW_METADATA
from omnigraph.wire.requests import ARROW_STREAM, IF_GRAPH_COMMIT
from tests.server.live import ADD, NOTHING, PEOPLE, Live


@pytest.fixture
def graph(open_server: Live) -> httpx.Client:
    return open_server.client()


def head(graph: httpx.Client, branch: str = "main") -> str:
    commits = graph.get("/commits", params={"branch": branch}).json()["commits"]
    return str(commits[0]["graph_commit_id"])


def count(graph: httpx.Client, branch: str = "main") -> int:
    answer = graph.post("/query", json={"query": PEOPLE, "branch": branch})
    return int(answer.json()["row_count"])


def test_a_query_answers_with_rows_and_the_commit_they_are_of(graph: httpx.Client):
    answer = graph.post("/query", json={"query": PEOPLE})
    assert answer.status_code == 200
    assert answer.json() == {
        "query_name": "people",
        "target": {"branch": "main", "snapshot": None},
        "row_count": 2,
        "columns": ["p.name", "p.age"],
        "rows": [{"p.name": "ada", "p.age": 36}, {"p.name": "bo", "p.age": 41}],
        "graph_commit_id": head(graph),
    }


def test_a_snapshot_is_read_as_it_was(graph: httpx.Client):
    before = head(graph)
    assert graph.post("/mutate", json={"query": ADD, "params": {"name": "cy"}}).status_code == 200
    answer = graph.post("/query", json={"query": PEOPLE, "snapshot": before.lower()}).json()
    assert answer["row_count"] == 2
    assert answer["target"] == {"branch": None, "snapshot": before}
    assert answer["graph_commit_id"] == before


def test_an_unknown_snapshot_is_not_found(graph: httpx.Client):
    answer = graph.post("/query", json={"query": PEOPLE, "snapshot": "nowhere"})
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")


def test_branch_and_snapshot_exclude_each_other(graph: httpx.Client):
    both = {"query": PEOPLE, "branch": "main", "snapshot": head(graph)}
    answer = graph.post("/query", json=both)
    assert answer.status_code == 400
    assert "exclude each other" in answer.json()["error"]


def test_arrow_carries_the_same_rows_and_the_rest_of_the_answer(graph: httpx.Client):
    plain = graph.post("/query", json={"query": PEOPLE}).json()
    answer = graph.post("/query", json={"query": PEOPLE}, headers={"Accept": ARROW_STREAM})
    assert answer.headers["content-type"] == ARROW_STREAM
    table = pa.ipc.open_stream(answer.content).read_all()
    assert table.to_pylist() == plain["rows"]
    about = httpx.Response(200, content=table.schema.metadata[ARROW_METADATA]).json()
    assert about == {name: value for name, value in plain.items() if name != "rows"}


def test_arrow_of_no_rows_still_has_its_columns(graph: httpx.Client):
    none = 'query none { match { $p: Person { name: "nobody" } } return { $p.name } }'
    answer = graph.post("/query", json={"query": none}, headers={"Accept": ARROW_STREAM})
    table = pa.ipc.open_stream(answer.content).read_all()
    assert (table.num_rows, table.column_names) == (0, ["p.name"])


def test_compile_errors_say_where(graph: httpx.Client):
    answer = graph.post("/query", json={"query": "query q { match { $p: Persn } return { $p.x } }"})
    assert answer.status_code == 400
    assert answer.json()["code"] == "bad_request"
    assert answer.json()["position"]["line"] == 1


@pytest.mark.parametrize("path", ["/query", "/read"])
def test_c_srv_013_a_read_route_rejects_mutating_source_naming_mutate(
    graph: httpx.Client, path: str
):
    name = "query" if path == "/query" else "query_source"
    before = count(graph)
    answer = graph.post(path, json={name: ADD, "params": {"name": "cy"}})
    assert answer.status_code == 400
    assert "/mutate" in answer.json()["hint"]
    assert count(graph) == before


def test_mutate_rejects_reading_source_naming_query(graph: httpx.Client):
    answer = graph.post("/mutate", json={"query": PEOPLE})
    assert answer.status_code == 400
    assert "/query" in answer.json()["hint"]


def test_c_srv_014_query_returns_the_commit_and_read_never(graph: httpx.Client):
    assert "graph_commit_id" in graph.post("/query", json={"query": PEOPLE}).json()
    old = graph.post("/read", json={"query_source": PEOPLE, "query_name": "people"})
    assert old.status_code == 200
    assert "graph_commit_id" not in old.json()
    assert old.json()["row_count"] == 2


def test_c_srv_015_only_deprecated_routes_carry_deprecation_headers(graph: httpx.Client):
    one = '{"type": "City", "data": {"name": "Oslo"}}\n'
    pairs = [
        ("/read", {"query_source": PEOPLE}, "/query", {"query": PEOPLE}),
        ("/change", {"query": NOTHING}, "/mutate", {"query": NOTHING}),
        ("/ingest", {"data": one}, "/load", {"data": one}),
    ]
    for old_path, old_body, new_path, new_body in pairs:
        old, new = graph.post(old_path, json=old_body), graph.post(new_path, json=new_body)
        assert (old.status_code, new.status_code) == (200, 200)
        assert old.headers["deprecation"] == "true"
        assert old.headers["link"] == f'<{new_path[1:]}>; rel="successor-version"'
        assert "deprecation" not in new.headers and "link" not in new.headers
    refused = graph.post("/read", json={"query_source": "no query"})
    assert refused.status_code == 400 and "deprecation" not in refused.headers


def test_c_srv_016_mutate_accepts_legacy_field_names(graph: httpx.Client):
    answer = graph.post(
        "/mutate", json={"query_source": ADD, "query_name": "add", "params": {"name": "cy"}}
    )
    assert answer.status_code == 200 and answer.json()["affected_nodes"] == 1
    both = graph.post("/mutate", json={"query_source": ADD, "query": ADD})
    assert both.status_code == 400


def test_c_srv_017_a_receipt_equals_the_commit_and_a_no_op_gives_null(graph: httpx.Client):
    answer = graph.post("/mutate", json={"query": ADD, "params": {"name": "cy"}}).json()
    commit = answer["commit"]
    assert commit == graph.get(f"/commits/{commit['graph_commit_id']}").json()
    assert answer == {
        "branch": "main",
        "query_name": "add",
        "affected_nodes": 1,
        "affected_edges": 0,
        "actor_id": None,
        "commit": commit,
    }
    assert graph.post("/mutate", json={"query": NOTHING}).json()["commit"] is None


BAD_CONDITIONS: list[list[str]] = [
    [],
    ["01K9WR3C5T8M2B7XQ4ZJ6V0NHD", "01K9WR3C5T8M2B7XQ4ZJ6V0NHD"],
    ['"01K9WR3C5T8M2B7XQ4ZJ6V0NHD"'],
    ['W/"01K9WR3C5T8M2B7XQ4ZJ6V0NHD"'],
    ["01K9WR3C5T8M2B7XQ4ZJ6V0NHD, 01K9WR3C5T8M2B7XQ4ZJ6V0NHD"],
    ["*"],
    [""],
]


@pytest.mark.parametrize("values", BAD_CONDITIONS)
def test_c_srv_018_a_condition_must_be_one_bare_commit_id(graph: httpx.Client, values: list[str]):
    before = head(graph)
    for path, body in (
        ("/mutate/if-graph-commit", {"query": ADD, "params": {"name": "cy"}}),
        ("/queries/sign_up/if-graph-commit", {"params": {"name": "cy"}}),
    ):
        headers = [(IF_GRAPH_COMMIT, value) for value in values]
        answer = graph.post(path, json=body, headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (400, "bad_request")
    assert head(graph) == before


def test_c_srv_019_a_stale_head_is_412_without_effect_and_the_current_one_is_200(
    graph: httpx.Client,
):
    stale = head(graph)
    graph.post("/mutate", json={"query": ADD, "params": {"name": "cy"}})
    current = head(graph)
    body = {"query": ADD, "params": {"name": "di"}}
    lost = graph.post("/mutate/if-graph-commit", json=body, headers={IF_GRAPH_COMMIT: stale})
    assert lost.status_code == 412
    assert "code" not in lost.json()
    assert lost.json()["precondition_failure"] == {"expected": stale, "actual": current}
    assert head(graph) == current
    won = graph.post("/mutate/if-graph-commit", json=body, headers={IF_GRAPH_COMMIT: current})
    assert won.status_code == 200
    assert won.json()["commit"]["parent_commit_id"] == current


def test_c_srv_020_plain_routes_reject_the_condition_header(graph: httpx.Client):
    before = head(graph)
    sent: dict[str, dict[str, object]] = {
        "/mutate": {"query": ADD, "params": {"name": "cy"}},
        "/change": {"query": ADD, "params": {"name": "cy"}},
        "/load": {"data": '{"type": "City", "data": {"name": "Oslo"}}\n'},
        "/queries/sign_up": {"params": {"name": "cy"}},
        "/queries/everybody": {},
        "/branches": {"name": "side"},
    }
    for path, body in sent.items():
        answer = graph.post(path, json=body, headers={IF_GRAPH_COMMIT: before})
        assert answer.status_code == 400, path
        assert IF_GRAPH_COMMIT in answer.json()["error"]
    assert head(graph) == before


def test_c_srv_021_the_token_of_a_fresh_branch_works_for_its_first_conditional_write(
    graph: httpx.Client,
):
    graph.post("/branches", json={"name": "side"})
    seen = graph.post("/query", json={"query": PEOPLE, "branch": "side"}).json()["graph_commit_id"]
    answer = graph.post(
        "/mutate/if-graph-commit",
        json={"query": ADD, "params": {"name": "cy"}, "branch": "side"},
        headers={IF_GRAPH_COMMIT: seen},
    )
    assert answer.status_code == 200
    assert (count(graph, "side"), count(graph)) == (3, 2)
