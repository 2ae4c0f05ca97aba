"""There is one gate: every verb, route, tool and way of Spark to a graph is decided by it."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.audit import AuditSettings
from omnigraph.audit.log import flush_all
from omnigraph.errors import NotFound, OmnigraphError, PolicyDenied
from omnigraph.graph import Graph, open_graph
from omnigraph.graph.computing import Algorithms
from omnigraph.graph.facade import NO_ACCESS, in_place
from omnigraph.graph.reviews import Reviews
from omnigraph.model.ids import MAIN_BRANCH
from omnigraph.policy import load_policy
from omnigraph.server.config import GraphSpec
from omnigraph.server.mcp_tools import ADHOC_TOOLS, GRAPH_TOOLS, REVIEW_TOOLS, SERVER_TOOLS
from omnigraph.wire.operations import GRAPH, OPERATIONS, Operation
from tests.server.live import (
    QUERIES,
    SCHEMA,
    SERVER_POLICY,
    Live,
    bearer,
    new_graph,
    serving,
    with_tokens,
)

NOTHING_GRANTED = "version: 2\ngroups: {team: [act-ana, act-bo]}\nrules: []\n"

READ = "query q { match { $p: Person } return { $p.name } }"
WRITE = 'query w { insert Person { name: "x" } }'

GIVEN: dict[str, Any] = {
    "source": READ,
    "desired": SCHEMA,
    "type": "Person",
    "type_name": "Person",
    "type_key": "node:Person",
    "entity_id": "ada",
    "entity": "node",
    "id": "ada",
    "property": "photo",
    "target": MAIN_BRANCH,
    "name": "fork",
    "mode": "merge",
    "frames": object(),
    "data": "",
    "landmarks": "ada",
    "text": "words",
    "verdict": "approve",
    "state": "passed",
    "comment_id": "C1",
    "checks": (),
    "run": None,
}
"""What verbs are called with, by the names of their parameters."""

OTHER: dict[str, dict[str, Any]] = {
    "mutate": {"source": WRITE},
    "merge_branch": {"source": "review"},
    "plan_merge": {"source": "review"},
    "diff": {"source": "review"},
    "diff_page": {"source": "review"},
    "load": {"data": ""},
    "open": {"source": "review"},
    "check": {"checks": Path("checks.yaml")},
    "report_check": {"name": "check"},
}
"""Where a name means something else."""


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A graph with a branch, a tag and a change request."""
    place = tmp_path_factory.mktemp("gate") / "graph.omni"
    graph = new_graph(place)
    graph.create_branch("review")
    graph.mutate(WRITE, branch="review")
    graph.create_tag("v1")
    graph.reviews.open("review")
    return place


@pytest.fixture
def denied(root: Path, tmp_path: Path) -> tuple[Graph, Path]:
    """The graph for an actor that no rule grants anything, and its audit."""
    lines = tmp_path / "audit.jsonl"
    graph = open_graph(
        root, policy=load_policy(NOTHING_GRANTED), audit=AuditSettings(lines), settle=False
    )
    return graph.acting_as("act-bo"), lines


def decisions(lines: Path) -> list[dict[str, Any]]:
    flush_all()
    found = [json.loads(line) for line in lines.read_text().splitlines()]
    return [each for each in found if each["event"] == "decision"]


def verbs_of(cls: type) -> Iterator[str]:
    return (name for name in dir(cls) if not name.startswith("_") and name not in NO_ACCESS)


def called(owner: Any, name: str, where: Path) -> None:
    """Call a verb with a value for each parameter that it needs; read a property."""
    verb = inspect.getattr_static(in_place(type(owner)), name)
    if isinstance(verb, property):
        getattr(owner, name)
        return
    values = {**GIVEN, **OTHER.get(name, {})}
    options: dict[str, Any] = {}
    for parameter in list(inspect.signature(verb).parameters.values())[1:]:
        if parameter.name in OTHER.get(name, {}):
            options[parameter.name] = values[parameter.name]
        if parameter.default is not parameter.empty or parameter.kind is parameter.VAR_POSITIONAL:
            continue
        if parameter.kind is parameter.VAR_KEYWORD:
            continue
        if parameter.name in ("destination", "directory", "checkpoint"):
            options[parameter.name] = where / "elsewhere"
        elif parameter.name == "commit_id":
            options[parameter.name] = MAIN_BRANCH
        else:
            options[parameter.name] = values[parameter.name]
    found = getattr(owner, name)(**options)
    if inspect.isgenerator(found):
        next(found)


@pytest.mark.parametrize("name", sorted(verbs_of(Graph)))
def test_c_acc_008_every_verb_of_a_graph_is_decided(
    name: str, denied: tuple[Graph, Path], tmp_path: Path
):
    graph, lines = denied
    with pytest.raises(NotFound if name in MASKED else PolicyDenied):
        called(graph, name, tmp_path)
    found = decisions(lines)
    assert found, f"`{name}` asks no gate: decide it, or enter it in NO_ACCESS with the reason"
    assert not any(each["decision"] == "allow" for each in found)
    assert {each["actor"] for each in found} == {"act-bo"}


MASKED = frozenset({"commit_changes", "commit_changes_page", "plan_cherry_pick"})
"""What may not be read is not there for them."""


@pytest.mark.parametrize("name", sorted(verbs_of(Reviews)))
def test_c_acc_008_every_verb_of_reviews_is_decided(
    name: str, root: Path, denied: tuple[Graph, Path], tmp_path: Path
):
    graph, lines = denied
    request = open_graph(root, "read_only").reviews.list().reviews[0]
    GIVEN["id"] = request.id
    try:
        with pytest.raises(OmnigraphError) as refused:
            called(graph.reviews, name, tmp_path)
    finally:
        GIVEN["id"] = "ada"
    assert isinstance(refused.value, PolicyDenied | NotFound)
    assert decisions(lines)
    assert not any(each["decision"] == "allow" for each in decisions(lines))


@pytest.mark.parametrize("name", sorted(verbs_of(Algorithms)))
def test_c_acc_008_every_computation_is_decided(
    name: str, denied: tuple[Graph, Path], tmp_path: Path
):
    graph, lines = denied
    with pytest.raises(PolicyDenied):
        called(graph.compute, name, tmp_path)
    assert decisions(lines)


@pytest.mark.parametrize("engine", ["local", "spark"])
def test_c_acc_008_no_engine_is_a_way_around(engine: Any, denied: tuple[Graph, Path]):
    graph, lines = denied
    ways: list[Callable[[], object]] = [
        lambda: graph.query(READ, engine=engine),
        lambda: graph.load(data="{}", mode="merge", engine=engine),
        lambda: graph.merge_branch("review", engine=engine),
        lambda: graph.diff(MAIN_BRANCH, "review", engine=engine),
        lambda: graph.optimize(engine=engine),
        lambda: graph.embed(engine=engine),
    ]
    for way in ways:
        with pytest.raises(PolicyDenied):
            way()
    assert {each["decision"] for each in decisions(lines)} == {"deny"}


def test_c_acc_008_what_is_no_access_is_listed_with_its_reason():
    public = {name for cls in (Graph, Reviews) for name in dir(cls) if not name.startswith("_")}
    assert set(NO_ACCESS) <= public
    for cls in (Graph, Reviews, Algorithms):
        for name in verbs_of(cls):
            verb = inspect.getattr_static(in_place(cls), name)
            inner = verb.fget if isinstance(verb, property) else verb
            assert hasattr(inner, "__wrapped__"), f"{cls.__name__}.{name} is not audited"


# --- routes ---------------------------------------------------------------------------------------

UNDECIDED = {
    "cluster_getPermissions": "tells callers their own rights",
}
"""Routes with a graph and without a decision."""

BODIES: dict[str, Any] = {
    "query": READ,
    "query_source": READ,
    "text": "query",
    "language": "gq",
    "schema_source": SCHEMA,
    "branch": "review",
    "data": "",
    "type": "Person",
    "name": "fork",
    "source": "review",
    "verdict": "approve",
    "state": "passed",
}
PARAMETERS = {
    "entity": "node",
    "type": "Person",
    "id": "ada",
    "property": "photo",
    "target": MAIN_BRANCH,
    "source": "review",
}


@pytest.fixture(scope="module")
def closed(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Live, Path]]:
    """A server whose policies grant act-bo nothing, and its audit."""
    place = tmp_path_factory.mktemp("served")
    (place / "policy.yaml").write_text(NOTHING_GRANTED)
    (place / "server.yaml").write_text(SERVER_POLICY)
    (place / "people.gq").write_text(QUERIES)
    spec = GraphSpec("default", str(root), (place / "people.gq",), place / "policy.yaml")
    lines = place / "audit.jsonl"
    with serving(
        spec,
        environment=with_tokens(),
        waits=False,
        mcp=True,
        mcp_adhoc=True,
        mcp_review_write=True,
        server_policy=place / "server.yaml",
        audit=AuditSettings(lines),
    ) as live:
        yield live, lines


def request_of(operation: Operation, review: str) -> tuple[str, dict[str, Any]]:
    """A well-formed request, as the path and the rest."""
    names = {"graph_id": "default", "branch": "review", "tag": "v1", "name": "everybody"}
    names |= {"commit_id": MAIN_BRANCH, "review_id": review, "comment_id": "C1"}
    path = operation.path.format(**names)
    query = {
        each.name: PARAMETERS[each.name]
        for each in operation.parameters
        if each.required and each.place == "query"
    }
    body: dict[str, Any] = {}
    if operation.body is not None:
        required = operation.body.model_json_schema().get("required", [])
        body = {"json": {name: BODIES[name] for name in required}}
    elif operation.method == "POST":
        body = {"content": b"", "headers": {"Content-Type": operation.takes}}
    return path, {"params": query, **body}


@pytest.mark.parametrize(
    "operation",
    [each for each in OPERATIONS if not each.is_public and each.id not in UNDECIDED],
    ids=lambda each: each.id,
)
def test_c_acc_008_every_route_is_decided_by_the_gate(
    operation: Operation, root: Path, closed: tuple[Live, Path]
):
    live, lines = closed
    review = live.graph().reviews.list().reviews[0].id
    path, rest = request_of(operation, review)
    headers = {**bearer("act-bo"), "X-Request-Id": operation.id, **rest.pop("headers", {})}
    if operation.id.endswith("if_graph_commit"):
        headers["Omnigraph-If-Graph-Commit"] = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
    answer = live.client("act-bo", graph_id=None).request(
        operation.method, path, headers=headers, **rest
    )
    assert answer.status_code in (403, 404), answer.text
    own = [each for each in decisions(lines) if each.get("request_id") == operation.id]
    assert own, f"{operation.id} asks no gate: decide it, or enter it in UNDECIDED with the reason"
    assert {each["decision"] for each in own} == {"deny"}
    questions = [
        tuple(each.get(name) for name in ("action", "branch", "target_branch")) for each in own
    ]
    assert len(set(questions)) == len(questions), "the same was asked twice"


def test_c_acc_008_routes_without_a_decision_touch_no_data(closed: tuple[Live, Path]):
    live, _ = closed
    assert set(UNDECIDED) <= {each.id for each in OPERATIONS}
    answer = live.client("act-bo").get("/permissions")
    assert answer.json() == {"actor_id": "act-bo", "branch": "main", "actions": []}
    public = {each.id for each in OPERATIONS if each.is_public}
    assert public == {"health", "cluster_health", "ready", "openapi", "openSession"}
    others = {each.id for each in OPERATIONS if GRAPH not in each.path}
    assert others - public == {"listGraphs"}


# --- tools ----------------------------------------------------------------------------------------

TOOLS = {**SERVER_TOOLS, **GRAPH_TOOLS, **ADHOC_TOOLS, **REVIEW_TOOLS}


def test_c_acc_008_every_tool_is_an_operation_that_is_decided(closed: tuple[Live, Path]):
    live, _ = closed
    decided = {each.id for each in OPERATIONS}
    assert all(tool.operation.id in decided for tool in TOOLS.values())
    for name in TOOLS:
        if name == "server_health":
            continue
        message = {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "tools/call",
            "params": {"name": name, "arguments": {}},
        }
        path = "/mcp" if name in SERVER_TOOLS else "/graphs/default/mcp"
        answer = live.client("act-bo", graph_id=None).post(path, json=message).json()
        assert answer["error"] == {"code": -32602, "message": f"Unknown tool: {name}"}


# --- upkeep ---------------------------------------------------------------------------------------

MAINTAINERS = """\
version: 2
groups: {keepers: [act-ana], team: [act-bo]}
rules:
  - id: keepers-maintain
    allow: {actors: {group: keepers}, actions: [maintain]}
  - id: all-read
    allow: {actors: {group: team}, actions: [read], branch_scope: any}
"""


def test_version_2_decides_upkeep_by_maintain_and_version_1_leaves_it_to_the_storage(root: Path):
    graph = open_graph(root, policy=load_policy(MAINTAINERS), settle=False)
    assert graph.acting_as("act-ana").cleanup(keep=1000) is not None
    with pytest.raises(PolicyDenied, match="`maintain`"):
        graph.acting_as("act-bo").stats()
    with pytest.raises(PolicyDenied, match="needs an actor"):
        graph.cleanup(keep=1000)
    older = load_policy("version: 1\ngroups: {team: [act-bo]}\n")
    assert open_graph(root, policy=older, settle=False).stats().branch == "main"


def test_reads_of_version_1_are_decided_for_callers_only(root: Path):
    graph = open_graph(root, policy=load_policy("version: 1\ngroups: {team: [act-bo]}\n"))
    assert graph.query(READ).row_count
    with pytest.raises(PolicyDenied):
        graph.acting_as("act-bo").query(READ)
    assert og.open(str(root)).acting_as("act-bo").query(READ).row_count
