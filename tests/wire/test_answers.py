"""Every answer of a running server is exactly what the OpenAPI description says of it."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest
from jsonschema import Draft202012Validator

from omnigraph.server.auth import OwnerSession
from omnigraph.server.config import GraphSpec
from omnigraph.wire.openapi import openapi
from omnigraph.wire.operations import OPERATIONS
from omnigraph.wire.requests import IF_GRAPH_COMMIT, JSON
from tests.server.live import (
    ADD,
    NOTHING,
    PEOPLE,
    POLICY,
    QUERIES,
    RECORDS,
    SCHEMA,
    SERVER_POLICY,
    Live,
    new_graph,
    serving,
    with_tokens,
)

AGE = 'query q($a: I32) { update Person set { age: $a } where name = "ada" }'
FAILED = {"state": "failed", "rows": [{"n": 1}], "text": "one"}
WIDER = SCHEMA + "node Pet { name: String @key }\n"


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    folder = tmp_path_factory.mktemp("answers")
    new_graph(folder / "team.omni")
    texts = {"queries.gq": QUERIES, "policy.yaml": POLICY, "server.yaml": SERVER_POLICY}
    for name, text in texts.items():
        (folder / name).write_text(text)
    spec = GraphSpec(
        "default", str(folder / "team.omni"), (folder / "queries.gq",), folder / "policy.yaml"
    )
    with serving(
        spec, environment=with_tokens(), server_policy=Path(folder / "server.yaml")
    ) as live:
        yield live


def strict(schema: Any) -> Any:
    """The same schema, in which an object has no member that is not declared."""
    if isinstance(schema, list):
        return [strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {key: strict(value) for key, value in schema.items()}
    if schema.get("type") == "object" and "properties" in schema:
        closed.setdefault("additionalProperties", False)
    return closed


@cache
def description() -> Any:
    """The description, which is built from all operations."""
    return strict(deepcopy(openapi()))


def check(answer: httpx.Response, operation_id: str) -> None:
    """Hold an answer against what is declared for its operation and status."""
    operation = next(
        operation
        for item in description()["paths"].values()
        for operation in item.values()
        if operation["operationId"] == operation_id
    )
    assert str(answer.status_code) in operation["responses"], answer.text
    declared = operation["responses"][str(answer.status_code)]
    if "$ref" in declared:
        declared = description()["components"]["responses"][declared["$ref"].rpartition("/")[2]]
    media = answer.headers.get("content-type", "").partition(";")[0]
    if not answer.content or media != JSON:
        return
    schema = {
        **declared["content"][media]["schema"],
        "components": {"schemas": description()["components"]["schemas"]},
    }
    problems = list(Draft202012Validator(schema).iter_errors(answer.json()))
    assert problems == [], answer.text


def calls(live: Live) -> Iterator[tuple[str, httpx.Response]]:
    """At least one success of every operation, and refusals of several kinds."""
    graph, server = live.client("act-ana"), live.client("act-ana", None)
    stranger = live.client("act-cy")
    yield "health", server.get("/healthz")
    yield "cluster_health", graph.get("/healthz")
    yield "ready", server.get("/readyz")
    yield "openapi", server.get("/openapi.json")
    yield "listGraphs", server.get("/graphs")
    yield "cluster_getSnapshot", graph.get("/snapshot")
    yield "cluster_getSchema", graph.get("/schema")
    yield "cluster_describeSchema", graph.get("/schema/types")
    yield "cluster_describeSchema", stranger.get("/schema/types")
    yield "cluster_describeQueries", graph.post("/describe", json={"query": PEOPLE})
    yield "cluster_describeQueries", graph.post("/describe", json={"query": "query q {"})
    yield "cluster_getPermissions", graph.get("/permissions")
    for path in ("query", "read"):
        text = "query" if path == "query" else "query_source"
        yield f"cluster_{path}", graph.post(f"/{path}", json={text: PEOPLE})
        yield f"cluster_{path}", graph.post(f"/{path}", json={text: "query q {"})
        yield f"cluster_{path}", graph.post(f"/{path}", json={text: ADD})
        yield f"cluster_{path}", stranger.post(f"/{path}", json={text: PEOPLE})
    changed = graph.post("/mutate", json={"query": ADD, "params": {"name": "cy"}})
    yield "cluster_mutate", changed
    yield "cluster_mutate", graph.post("/mutate", json={"query": NOTHING})
    yield "cluster_mutate", graph.post("/mutate", json={"query": ADD})
    yield "cluster_change", graph.post("/change", json={"query": ADD, "params": {"name": "di"}})
    commit_id = changed.json()["commit"]["graph_commit_id"]
    head = graph.get("/commits").json()["commits"][0]["graph_commit_id"]
    body = {"query": ADD, "params": {"name": "ed"}}
    for expected in (head, head):
        condition = {IF_GRAPH_COMMIT: expected}
        yield (
            "cluster_mutate_if_graph_commit",
            graph.post("/mutate/if-graph-commit", json=body, headers=condition),
        )
    yield "cluster_list_queries", graph.get("/queries")
    yield "cluster_invoke_query", graph.post("/queries/everybody", json={})
    yield (
        "cluster_invoke_query",
        graph.post("/queries/sign_up", json={"params": {"name": "fay"}}),
    )
    head = graph.get("/commits").json()["commits"][0]["graph_commit_id"]
    yield (
        "cluster_invoke_query_if_graph_commit",
        graph.post(
            "/queries/sign_up/if-graph-commit",
            json={"params": {"name": "gus"}},
            headers={IF_GRAPH_COMMIT: head},
        ),
    )
    for path in ("load", "ingest"):
        yield f"cluster_{path}", graph.post(f"/{path}", json={"data": RECORDS})
        yield (
            f"cluster_{path}",
            graph.post(f"/{path}", json={"data": RECORDS, "mode": "append"}),
        )
        yield f"cluster_{path}", graph.post(f"/{path}", json={"data": '{"type": "None"}'})
    records = {"content": RECORDS, "headers": {"Content-Type": "application/x-ndjson"}}
    yield "cluster_loadNdjson", graph.post("/load/ndjson", **records)  # type: ignore[arg-type]
    yield "cluster_export", graph.post("/export", json={})
    yield "cluster_table", graph.post("/table", json={"type": "Person"})
    yield "cluster_listBranches", graph.get("/branches")
    for name in ("review", "clash", "gone"):
        yield "cluster_createBranch", graph.post("/branches", json={"name": name})
    yield "cluster_createBranch", graph.post("/branches", json={"name": "review"})
    for name in ("v1", "v1", "review"):
        yield "cluster_createTag", graph.post("/tags", json={"name": name})
    yield "cluster_listTags", graph.get("/tags")
    written = {"text": "query q { match { $p: Person } return { $p. } }", "language": "gq"}
    yield "cluster_language", graph.post("/language", json={**written, "line": 1, "column": 44})
    yield "cluster_language", graph.post("/language", json={**written, "language": "sql"})
    yield "cluster_deleteTag", graph.delete("/tags/v1")
    yield "cluster_deleteTag", graph.delete("/tags/v1")
    for branch, age in (("review", 1), ("clash", 2)):
        body = {"query": AGE, "params": {"a": age}, "branch": branch}
        graph.post("/mutate", json=body).raise_for_status()
    yield from reviews(graph, commit_id)
    yield from change_requests(graph)
    graph.post("/branches", json={"name": "more"}).raise_for_status()
    merge = {"source": "more", "delete_branch": True}
    yield "cluster_mergeBranches", graph.post("/branches/merge", json=merge)
    yield "cluster_mergeBranches", graph.post("/branches/merge", json={"source": "clash"})
    yield "cluster_deleteBranch", graph.delete("/branches/gone")
    yield "cluster_deleteBranch", graph.delete("/branches/gone")
    yield "cluster_listCommits", graph.get("/commits")
    yield "cluster_getCommit", graph.get(f"/commits/{commit_id}")
    genesis = graph.get("/commits").json()["commits"][-1]["graph_commit_id"]
    for each in (commit_id, genesis, "01K3Z7M0Q8W4R6T2Y5V9B1N3XC"):
        yield "cluster_getCommitChanges", graph.get(f"/commits/{each}/changes")
    yield "cluster_getCommitChanges", stranger.get(f"/commits/{commit_id}/changes")
    yield "cluster_pollChanges", graph.get("/changes", params={"start": "beginning", "limit": 1})
    yield "cluster_pollChanges", graph.get("/changes", params={"cursor": "bad"})
    yield "cluster_captureChangeBaseline", graph.post("/changes/baseline", json={})
    photo = {"entity": "node", "type": "Person", "id": "ada", "property": "photo"}
    put = 'query q($d: Blob) { update Person set { photo: $d } where name = "ada" }'
    data = {"query": put, "params": {"d": "base64:MDEyMw=="}}
    graph.post("/mutate", json=data).raise_for_status()
    yield "cluster_getBlob", graph.get("/blob", params=photo)
    for wanted in ("bytes=1-2", "bytes=99-"):
        yield "cluster_getBlob", graph.get("/blob", params=photo, headers={"Range": wanted})
    yield "cluster_headBlob", graph.head("/blob", params=photo)
    for source in (WIDER, "node {"):
        yield "cluster_applySchema", graph.post("/schema/apply", json={"schema_source": source})
    for asked in ({"branch": "clash", "dry_run": True}, {"branch": "clash"}, {"branch": "main"}):
        yield "cluster_rebaseSchema", graph.post("/schema/rebase", json=asked)


def reviews(graph: httpx.Client, commit_id: str) -> Iterator[tuple[str, httpx.Response]]:
    """Operations about branches with changes in them."""
    ends = {"target": "main", "source": "review", "images": "true"}
    yield "cluster_diff", graph.get("/diff", params=ends)
    yield "cluster_diff", graph.get("/diff", params={"target": "main"})
    yield "cluster_planMerge", graph.post("/branches/merge/plan", json={"source": "review"})
    conflicting = {"source": "review", "target": "clash"}
    yield "cluster_planMerge", graph.post("/branches/merge/plan", json=conflicting)
    ada = {"type": "Person", "id": "ada", "branch": "review"}
    yield "cluster_getEntityHistory", graph.get("/history", params=ada)
    for verb, name in (("revert", "Revert"), ("cherry-pick", "CherryPick")):
        path = f"/commits/{commit_id}/{verb}"
        branch = {"branch": "clash"}
        yield f"cluster_plan{name}", graph.post(f"{path}/plan", json=branch)
        done = f"cluster_{name[0].lower()}{name[1:]}Commit"
        yield done, graph.post(path, json=branch)
        yield done, graph.post(path.replace(commit_id, "none"), json=branch)
    yield "cluster_explain", graph.post("/explain", json={"query": PEOPLE})
    yield "cluster_query", graph.post("/query", json={"query": PEOPLE, "explain": True})
    yield "cluster_getStats", graph.get("/stats")
    yield "cluster_planSchema", graph.post("/schema/plan", json={"schema_source": WIDER})


def change_requests(graph: httpx.Client) -> Iterator[tuple[str, httpx.Response]]:
    """A change request from opening to merging, and refusals on the way."""
    opened = graph.post("/reviews", json={"source": "review", "title": "Ages"})
    yield "cluster_openReview", opened
    yield "cluster_openReview", graph.post("/reviews", json={"source": "nowhere"})
    one = f"/reviews/{opened.json()['id']}"
    yield "cluster_listReviews", graph.get("/reviews")
    yield "cluster_listReviews", graph.get("/reviews", params={"limit": 1_000_000})
    yield "cluster_getReview", graph.get("/reviews/none")
    yield "cluster_diffReview", graph.get(f"{one}/diff", params={"images": "true"})
    yield "cluster_editReview", graph.post(f"{one}/edit", json={"title": "All ages"})
    said = graph.post(f"{one}/comments", json={"text": "why?", "type_name": "Person"})
    yield "cluster_commentReview", said
    thread = said.json()["comments"][0]["id"]
    yield "cluster_resolveComment", graph.post(f"{one}/comments/{thread}/resolve")
    yield "cluster_reviewReview", graph.post(f"{one}/review", json={"verdict": "approve"})
    yield "cluster_checkReview", graph.post(f"{one}/check")
    yield "cluster_reportCheck", graph.post(f"{one}/checks/lint", json=FAILED)
    yield "cluster_getReview", graph.get(one)
    yield "cluster_closeReview", graph.post(f"{one}/close")
    yield "cluster_closeReview", graph.post(f"{one}/close")
    yield "cluster_mergeReview", graph.post(f"{one}/merge")
    yield "cluster_reopenReview", graph.post(f"{one}/reopen")
    yield "cluster_exportReviews", graph.get("/reviews/events", params={"limit": 2})
    yield "cluster_mergeReview", graph.post(f"{one}/merge", json={"delete_branch": True})
    yield "cluster_getReview", graph.get(one)


def of_owner(folder: Path) -> Iterator[tuple[str, httpx.Response]]:
    """The session of a server's owner, and what needs a right that no rule of the policy gives."""
    new_graph(folder / "own.omni")
    owner = OwnerSession("act-ana")
    with serving(GraphSpec("default", str(folder / "own.omni")), owner=owner) as own:
        for _ in range(2):  # A code opens one session.
            opened = own.client(None, None).post("/session", json={"code": owner.code})
            yield "openSession", opened
            if opened.status_code == 200:
                token = opened.json()["token"]
        graph = own.client()
        graph.headers["Authorization"] = f"Bearer {token}"
        graph.post("/branches", json={"name": "review"}).raise_for_status()
        body = {"query": AGE, "params": {"a": 1}, "branch": "review"}
        graph.post("/mutate", json=body).raise_for_status()
        request = graph.post("/reviews", json={"source": "review", "title": "Ages"})
        checks = f"/reviews/{request.json()['id']}/checks/lint"
        yield "cluster_reportCheck", graph.post(checks, json=FAILED)


def test_every_live_answer_is_what_the_description_says(live: Live, tmp_path: Path):
    succeeded = set()
    for operation_id, answer in chain(calls(live), of_owner(tmp_path)):
        check(answer, operation_id)
        if answer.status_code < 400:
            succeeded.add(operation_id)
    assert succeeded == {operation.id for operation in OPERATIONS}


def test_an_undeclared_member_is_noticed():
    answer = httpx.Response(
        200, content=orjson.dumps({"branches": [], "more": 1}), headers={"content-type": JSON}
    )
    with pytest.raises(AssertionError):
        check(answer, "cluster_listBranches")
