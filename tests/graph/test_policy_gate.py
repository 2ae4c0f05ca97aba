"""The gate at the head of every write: nothing is done that a policy does not allow."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.embedding.config import EmbeddingConfig
from omnigraph.errors import InputError, NotFound, PolicyDenied, PolicyEvaluationFailed
from omnigraph.graph import ErrorOptions
from omnigraph.graph.gate import UNNAMED
from omnigraph.graph.writing import ensure_branch
from omnigraph.policy import Policy, load_policy
from omnigraph.policy.cedar import Uid

SCHEMA = "node Person { name: String @key  age: I32?  sense: Vector(2)? @embed(name) }"
NEXT_SCHEMA = SCHEMA.replace("age: I32?", "age: I32?  city: String?")
MOCK = EmbeddingConfig.of("mock")
ADD = "query add($n: String) { insert Person { name: $n } }"
RECORD = '{"type": "Person", "data": {"name": "loaded"}}\n'

DENY_ALL = load_policy("version: 1\ngroups: {team: [act-ana]}\n")


def granting(*rules: str, protected: str = "main") -> Policy:
    """A policy that lets act-ana do some actions: `change`, `branch_merge protected`."""
    lines = []
    for at, rule in enumerate(rules):
        action, _, scope = rule.partition(" ")
        key = "branch_scope" if action in ("change", "read") else "target_branch_scope"
        limit = f", {key}: {scope}" if scope else ""
        lines.append(
            f"  - {{id: r{at}, allow: {{actors: {{group: team}}, actions: [{action}]{limit}}}}}\n"
        )
    return load_policy(
        f"version: 1\ngroups: {{team: [act-ana]}}\nprotected_branches: [{protected}]\n"
        f"rules:\n{''.join(lines)}"
    )


@dataclass(frozen=True)
class Write:
    """One write verb of `Graph`, and the question it has to ask first."""

    verb: str
    run: Callable[[og.Graph, str | None], object]
    action: str
    branch: str | None = None
    target_branch: str | None = None
    source: str | None = None
    """The branch it takes data from, which the actor has to be able to read."""


def cloned(graph: og.Graph) -> Path:
    """A clone of a graph, made beside it once."""
    place = Path(graph.uri).with_name("clone.omni")
    if not place.exists():
        graph.clone(place)
    return place


def head(graph: og.Graph, branch: str) -> str:
    return graph.list_commits(branch)[0].graph_commit_id


WRITES = [
    Write("mutate", lambda g, a: g.mutate(ADD, {"n": "x"}, actor=a), "change", "main"),
    Write(
        "mutate",
        lambda g, a: g.mutate(ADD, {"n": "x"}, branch="review", actor=a),
        "change",
        "review",
    ),
    Write("load", lambda g, a: g.load(data=RECORD, mode="merge", actor=a), "change", "main"),
    Write(
        "load",
        lambda g, a: g.load(data=RECORD, mode="merge", branch="review", from_="main", actor=a),
        "change",
        "review",
    ),
    Write("embed", lambda g, a: g.embed(embedding=MOCK, actor=a), "change", "main", source="main"),
    Write(
        "revert", lambda g, a: g.revert(head(g, "main"), actor=a), "change", "main", source="main"
    ),
    Write(
        "cherry_pick",
        lambda g, a: g.cherry_pick(head(g, "review"), "side", actor=a),
        "change",
        "side",
        source="review",
    ),
    Write(
        "create_branch",
        lambda g, a: g.create_branch("new", "review", actor=a),
        "branch_create",
        "review",
        "new",
        "review",
    ),
    Write(
        "delete_branch",
        lambda g, a: g.delete_branch("side", actor=a),
        "branch_delete",
        None,
        "side",
    ),
    Write(
        "create_tag",
        lambda g, a: g.create_tag("v1", "review", actor=a),
        "tag_create",
        None,
        "v1",
        "review",
    ),
    Write("delete_tag", lambda g, a: g.delete_tag("v0", actor=a), "tag_delete", None, "v0"),
    Write(
        "merge_branch",
        lambda g, a: g.merge_branch("review", actor=a),
        "branch_merge",
        "review",
        "main",
        "review",
    ),
    Write(
        "merge_branch",
        lambda g, a: g.merge_branch("review", "side", actor=a),
        "branch_merge",
        "review",
        "side",
        "review",
    ),
    Write(
        "pull",
        lambda g, a: g.pull(cloned(g), branch="side", actor=a),
        "branch_merge",
        "side",
        "side",
        "side",
    ),
    Write(
        "push", lambda g, a: g.push(cloned(g), branch="review", actor=a), "read", branch="review"
    ),
    Write(
        "apply_schema",
        lambda g, a: g.apply_schema(NEXT_SCHEMA, actor=a),
        "schema_apply",
        None,
        "main",
    ),
    Write(
        "rebase_schema",
        lambda g, a: g.rebase_schema("review", actor=a),
        "schema_apply",
        None,
        "review",
    ),
]

UPKEEP = {
    *("cleanup", "clone", "close", "create_backup", "ensure_indices", "optimize", "recover"),
    *("repair", "scrub"),
}
"""Done by whoever runs the storage: there is no actor, and no action to allow."""

READS = {
    *("accepted_ir", "auto_optimize", "blob", "blocked_branches", "change_baseline"),
    *(
        "commit_changes",
        "commit_changes_page",
        "describe_queries",
        "describe_schema",
        "diff",
        "diff_page",
        "entity_at",
    ),
    *("entity_history", "examine"),
    *(
        "explain",
        "export",
        "export_to",
        "frame",
        "list_branches",
        "list_commits",
        "list_recoveries",
        "list_tags",
    ),
    *("plan_cherry_pick", "plan_merge", "plan_revert", "plan_schema", "poll_changes", "query"),
    *("schema_source", "show_commit", "snapshot", "stats", "table", "uri"),
    *("to_igraph", "to_networkx", "to_pyg"),
}
"""Not gated here: who may read is decided where a request comes in."""

HANDLES = {"acting_as", "branch", "compute", "on_branch", "reviews", "stream_into"}
"""Give a handle with a default actor; they write through gated verbs only, those of reviews as
`tests/review/test_faces.py` shows. A stream is gated as a
load is, which takes Spark to show: `tests/pipeline/test_streams.py`."""

each_write = pytest.mark.parametrize(
    "write", WRITES, ids=lambda write: f"{write.verb}-{write.target_branch or write.branch}"
)


def prepared(path: Path) -> og.Graph:
    """A graph with the branches review, one commit ahead, and side."""
    graph = og.init(path, schema=SCHEMA)
    graph.mutate(ADD, {"n": "base"})
    graph.create_branch("review")
    graph.create_branch("side")
    graph.create_tag("v0")
    graph.mutate(ADD, {"n": "reviewed"}, branch="review")
    return graph


@pytest.fixture(scope="module")
def untouched(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The root of a graph that no test of this module manages to change."""
    return prepared(tmp_path_factory.mktemp("gate") / "graph.omni").uri


def storage(uri: str) -> dict[str, tuple[int, int]]:
    """Every file below a root, with its size and the moment it was written."""
    found = {}
    for path in Path(uri.removeprefix("file://")).rglob("*"):
        facts = path.stat()
        found[str(path)] = (facts.st_size, facts.st_mtime_ns)
    return found


@pytest.fixture
def nothing_happens(untouched: str) -> Iterator[None]:
    before = storage(untouched)
    assert before
    yield
    assert storage(untouched) == before


# --- every verb -----------------------------------------------------------------------------------


def test_every_public_verb_is_a_gated_write_upkeep_or_a_read():
    public = {name for name in dir(og.Graph) if not name.startswith("_")}
    gated = {write.verb for write in WRITES}
    assert public - gated - UPKEEP - READS - HANDLES == set(), (
        "a new verb: if it writes, call the gate first and enter it in WRITES with its question; "
        "otherwise enter it in READS"
    )
    assert gated | UPKEEP | READS | HANDLES == public


def test_whatever_has_an_actor_is_a_gated_write():
    def has_actor(name: str) -> bool:
        verb = getattr(og.Graph, name)
        return callable(verb) and "actor" in inspect.signature(verb).parameters

    with_actor = {name for name in dir(og.Graph) if not name.startswith("_") and has_actor(name)}
    assert with_actor - {"list_commits"} - HANDLES == {write.verb for write in WRITES}


@each_write
def test_a_denied_write_does_nothing_and_says_what_was_asked(
    write: Write, untouched: str, nothing_happens: None
):
    graph = og.open(untouched, policy=DENY_ALL)
    for actor in ("act-ana", "act-eve"):
        with pytest.raises(PolicyDenied) as caught:
            write.run(graph, actor)
        error = caught.value
        assert (error.action, error.actor) == (write.action, actor)
        assert (error.branch, error.target_branch) == (write.branch, write.target_branch)
        assert actor in error.message
        assert error.hint is not None


@each_write
def test_c_pol_030_a_write_without_an_actor_is_refused(
    write: Write, untouched: str, nothing_happens: None
):
    graph = og.open(untouched, policy=granting(write.action))
    with pytest.raises(PolicyDenied, match="needs an actor") as caught:
        write.run(graph, None)
    assert (caught.value.action, caught.value.actor) == (write.action, None)


@each_write
def test_a_policy_without_an_answer_stops_a_write(
    write: Write, untouched: str, nothing_happens: None
):
    policy = granting(write.action)
    policy._cedar.resource = Uid("Server", "root")  # what no question about a graph is about
    with pytest.raises(PolicyEvaluationFailed):
        write.run(og.open(untouched, policy=policy), "act-ana")


@each_write
def test_c_pol_040_a_reserved_or_blank_actor_cannot_write(
    write: Write, untouched: str, nothing_happens: None
):
    for policy in (None, granting(write.action)):
        graph = og.open(untouched, policy=policy)
        with pytest.raises(InputError, match="`omnigraph:recovery`, and ids that begin"):
            write.run(graph, "omnigraph:recovery")
        with pytest.raises(InputError, match="is blank"):
            write.run(graph, " ")


@each_write
def test_a_write_needs_its_own_action_and_no_other(write: Write, tmp_path: Path):
    graph = prepared(tmp_path / "graph.omni")
    # Limited to the very branch of the question, so that one about another would be denied.
    written = str(write.target_branch or write.branch)
    own = f"{write.action} protected"
    if write.source is None:
        write.run(og.open(graph.uri, policy=granting(own, protected=written)), "act-ana")
        return
    # Data comes along, so the source has to be readable as well.
    others = "unprotected" if write.source == written else "protected"
    blind = og.open(graph.uri, policy=granting(own, f"read {others}", protected=written))
    with pytest.raises((PolicyDenied, NotFound)):
        write.run(blind, "act-ana")
    scope = "protected" if write.source == written else "unprotected"
    policy = granting(own, f"read {scope}", protected=written)
    write.run(og.open(graph.uri, policy=policy), "act-ana")


def test_a_commit_of_an_unreadable_branch_is_like_an_unknown_one(untouched: str):
    graph = og.open(untouched, policy=granting("change", "read unprotected", protected="review"))
    unknown = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
    hidden = head(graph, "review")
    for verb in (graph.revert, graph.cherry_pick):
        told = []
        for commit_id in (hidden, unknown):
            with pytest.raises(NotFound) as caught:
                verb(commit_id, actor="act-ana")
            told.append(caught.value.render().replace(commit_id, "*"))
        assert told[0] == told[1]


@pytest.mark.parametrize(
    "query",
    [
        'query q { update Person set { age: 1 } where name = "base" }',
        'query q { delete Person where name = "nobody" }',
    ],
)
def test_selecting_rows_to_change_needs_read(query: str, untouched: str, nothing_happens: None):
    with pytest.raises(PolicyDenied) as caught:
        og.open(untouched, policy=granting("change")).mutate(query, actor="act-ana")
    assert (caught.value.action, caught.value.branch) == ("read", "main")


@each_write
def test_c_pol_032_without_a_policy_every_actor_may_write(write: Write, tmp_path: Path):
    graph = prepared(tmp_path / "graph.omni")
    write.run(og.open(graph.uri), None)


def test_reads_and_upkeep_ask_no_policy(tmp_path: Path):
    graph = og.open(prepared(tmp_path / "graph.omni").uri, policy=DENY_ALL)
    rows = graph.query("query q { match { $p: Person } return { $p.name as name } }").to_pylist()
    assert [row["name"] for row in rows] == ["base"]
    graph.optimize()
    assert graph.recover() == []


# --- loads ----------------------------------------------------------------------------------------


def load_fork(graph: og.Graph, **options: Any) -> bool:
    loaded = graph.load(
        data=RECORD, mode="merge", branch="fork", from_="main", actor="act-ana", **options
    )
    return loaded.branch_created


def test_c_pol_038_a_load_that_forks_needs_to_create_the_branch(tmp_path: Path):
    uri = prepared(tmp_path / "graph.omni").uri
    with pytest.raises(PolicyDenied) as caught:
        load_fork(og.open(uri, policy=granting("change")))
    error = caught.value
    assert (error.action, error.branch, error.target_branch) == ("branch_create", "main", "fork")
    with pytest.raises(PolicyDenied) as caught:
        load_fork(og.open(uri, policy=granting("branch_create")))
    assert (caught.value.action, caught.value.branch) == ("change", "fork")
    assert og.open(uri).list_branches() == ["main", "review", "side"]

    assert load_fork(og.open(uri, policy=granting("branch_create unprotected", "change", "read")))
    # Now the branch is there, and nothing is created.
    assert not load_fork(og.open(uri, policy=granting("change unprotected")))


def test_c_pol_038_a_branch_that_vanishes_meanwhile_is_not_created_unasked(untouched: str):
    graph = og.open(untouched, policy=granting("change"))
    with pytest.raises(PolicyDenied):
        ensure_branch(graph._opened, "vanished", "main", UNNAMED.by("act-ana"))
    assert "vanished" not in graph.list_branches()


def test_a_denied_load_reads_no_input_and_leaves_other_files_alone(
    untouched: str, nothing_happens: None, tmp_path: Path
):
    class Unread:
        def __iter__(self) -> Iterator[bytes]:
            raise AssertionError("the input was read")

    report = tmp_path / "errors.jsonl"
    report.write_text("of an earlier load", encoding="utf-8")
    graph = og.open(untouched, policy=DENY_ALL)
    with pytest.raises(PolicyDenied):
        graph.load(
            data=Unread(), mode="merge", actor="act-ana", errors=ErrorOptions(errors_out=report)
        )
    with pytest.raises(PolicyDenied):
        graph.load(data=RECORD, mode="merge", actor="act-ana", dry_run=True)
    assert report.read_text(encoding="utf-8") == "of an earlier load"


# --- merges ---------------------------------------------------------------------------------------


def test_c_pol_039_a_denied_deletion_leaves_the_merge_standing(tmp_path: Path):
    uri = prepared(tmp_path / "graph.omni").uri
    graph = og.open(
        uri, policy=granting("branch_merge protected", "branch_delete protected", "read")
    )
    receipt = graph.merge_branch("review", delete_branch=True, actor="act-ana")
    assert receipt.outcome == "fast_forward"
    assert receipt.branch_deleted is False
    assert "no rule lets actor `act-ana` do `branch_delete`" in str(receipt.branch_delete_error)
    assert "review" in graph.list_branches()
    assert graph.entity_at("node:Person", "reviewed") is not None


def test_an_allowed_deletion_follows_the_merge(tmp_path: Path):
    uri = prepared(tmp_path / "graph.omni").uri
    graph = og.open(uri, policy=granting("branch_merge", "branch_delete unprotected", "read"))
    receipt = graph.merge_branch("review", delete_branch=True, actor="act-ana")
    assert receipt.branch_deleted is True
    assert "review" not in graph.list_branches()


def test_the_actor_that_was_allowed_signs_the_commit(tmp_path: Path):
    graph = og.init(tmp_path / "graph.omni", schema=SCHEMA, policy=granting("change"))
    graph.mutate(ADD, {"n": "x"}, actor="act-ana")
    assert graph.list_commits()[0].actor_id == "act-ana"


# --- opening --------------------------------------------------------------------------------------


def test_a_graph_can_be_made_with_a_policy(tmp_path: Path):
    graph = og.init(tmp_path / "graph.omni", schema=SCHEMA, policy=DENY_ALL)
    with pytest.raises(PolicyDenied):
        graph.mutate(ADD, {"n": "x"}, actor="act-ana")


def test_c_pol_040_a_reserved_actor_cannot_make_a_graph(tmp_path: Path):
    with pytest.raises(InputError, match="reserved"):
        og.init(tmp_path / "graph.omni", schema=SCHEMA, actor="omnigraph:upkeep")
    assert not (tmp_path / "graph.omni").exists()


def test_the_policy_of_a_server_is_refused_before_anything_is_done(tmp_path: Path, untouched: str):
    policy = load_policy("version: 1\nkind: server\n")
    with pytest.raises(InputError, match="decides about a server, not about a graph"):
        og.init(tmp_path / "graph.omni", schema=SCHEMA, policy=policy)
    assert not (tmp_path / "graph.omni").exists()
    with pytest.raises(InputError, match="decides about a server, not about a graph"):
        og.open(untouched, policy=policy)


def test_a_graph_opened_to_be_read_refuses_writes_first(untouched: str):
    graph = og.open(untouched, "read_only", policy=DENY_ALL)
    with pytest.raises(InputError, match="needs a graph opened for writing"):
        graph.mutate(ADD, {"n": "x"}, actor="act-ana")
