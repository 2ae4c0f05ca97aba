"""A name that an actor may not see does not exist for it, whoever is asked."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.audit import AuditFilter, read_entries
from omnigraph.engines.local import tables
from omnigraph.engines.local.engine import LocalEngine
from omnigraph.engines.local.tables import tables_of
from omnigraph.errors import (
    ChangeDiffRefused,
    ConstraintViolation,
    OmnigraphError,
    PolicyDenied,
)
from omnigraph.graph import open_graph
from omnigraph.model.result import ReadTarget
from omnigraph.policy import Identity, load_policy

SCHEMA = """
interface Named { name: String }
node Person @description("who") implements Named {
  slug: String @key
  name: String
  city: String? @index
  salary: I64?
  photo: Blob?
  bio: String? @index
  vec: Vector(2)? @index
}
node Company implements Named { slug: String @key  name: String }
node Secret implements Named { slug: String @key  name: String  persons: I64? }
edge WorksAt: Person -> Company { since: I64? }
edge Hides: Person -> Secret
edge About: Secret -> Named
"""
SHOWN = """
interface Named { name: String }
node Person @description("who") implements Named {
  slug: String @key
  name: String
  city: String? @index
  bio: String? @index
  vec: Vector(2)? @index
}
node Company implements Named { slug: String @key  name: String }
edge WorksAt: Person -> Company { since: I64? }
"""
"""What is left of it."""

BUNDLE = """
version: 2
groups: {analysts: [act-ana], owners: [act-own]}
rules:
  - id: analysts-read
    allow: {actors: {group: analysts}, actions: [read, export]}
    types:
      Person: {properties: [slug, name, city, bio, vec], where: "$row.city = $actor.city"}
      Company: all
      WorksAt: all
      About: all
  - id: analysts-maintain
    allow: {actors: {group: analysts}, actions: [maintain]}
  - id: owners-read
    allow: {actors: {group: owners}, actions: [read, export]}
"""
ANA = Identity.of("act-ana", {"city": "Oslo"})

RECORDS = """\
{"type": "Person", "data": {"slug": "ada", "name": "Ada", "city": "Oslo", "salary": 7, "bio": "fox", "vec": [9, 9], "photo": "base64:AAEC"}}
{"type": "Person", "data": {"slug": "bo", "name": "Bo", "city": "Rome", "salary": 8, "bio": "red fox fox", "vec": [0, 0], "photo": "base64:AAEC"}}
{"type": "Person", "data": {"slug": "cy", "name": "Cy", "city": "Oslo", "salary": 9, "bio": "red fox", "vec": [3, 3]}}
{"type": "Company", "data": {"slug": "acme", "name": "Acme"}}
{"type": "Secret", "data": {"slug": "s", "name": "S", "persons": 3}}
{"edge": "WorksAt", "from": "ada", "to": "acme", "data": {"since": 1}}
{"edge": "WorksAt", "from": "bo", "to": "acme", "data": {"since": 2}}
{"edge": "Hides", "from": "ada", "to": "s", "data": {}}
{"edge": "About", "from": "s", "to": "ada", "to_type": "Person", "data": {}}
"""  # noqa: E501 - a record a line


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> og.Graph:
    graph = og.init(tmp_path_factory.mktemp("names") / "g.omni", schema=SCHEMA)
    graph.load(data=RECORDS, mode="append")
    graph.ensure_indices()
    return og.open(graph.uri, policy=load_policy(BUNDLE))


@pytest.fixture(scope="module")
def seen(whole: og.Graph) -> og.Graph:
    return whole.acting_as(ANA)


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> og.Graph:
    """A graph that never had what is hidden."""
    graph = og.init(tmp_path_factory.mktemp("copy") / "g.omni", schema=SHOWN)
    for record in RECORDS.splitlines():
        if not any(word in record for word in ("Secret", "Hides", "About", '"bo"')):
            line = record.replace(', "photo": "base64:AAEC"', "")
            for pay in ("7", "8", "9"):
                line = line.replace(f'"salary": {pay}, ', "")
            graph.load(data=line, mode="append")
    return graph


QUERIES = (
    "query q() { match { $s: Secret } return { $s.name } }",
    "query q() { match { $s: Secre } return { $s.name } }",
    "query q() { match { $p: Person } return { $p.salary } }",
    "query q() { match { $p: Person } return { $p.salry } }",
    "query q() { match { $p: Person { salary: 7 } } return { $p.slug } }",
    "query q() { match { $p: Person  $p hides $s } return { $s } }",
    "query q() { match { $p: Person  not { $p hides $_ } } return { $p.slug } }",
    "query q() { match { $s about $p } return { $p } }",
    "query q() { match { $p: Person } return { count(*) as n } order { $p.salary } }",
    'query q() { insert Secret { slug: "x", name: "x" } }',
    'query q() { update Person set { salary: 1 } where slug = "ada" }',
    "query q() { delete Person where salary = 7 }",
)


@pytest.mark.parametrize("text", QUERIES)
def test_c_acc_003_a_hidden_name_has_the_error_of_an_unknown_one(
    seen: og.Graph, copy: og.Graph, text: str
):
    asks: list[Callable[[og.Graph], Any]] = [
        lambda graph: graph.explain(text),
        lambda graph: graph.describe_queries(text),
    ]
    if "match" in text:
        asks.append(lambda graph: graph.query(text).to_pylist())
    for ask in asks:
        assert told(ask, seen) == told(ask, copy)


VERBS: tuple[Callable[[og.Graph], Any], ...] = (
    lambda g: list(g.export(types=["Secret"])),
    lambda g: g.entity_at("node:Secret", "s"),
    lambda g: list(g.entity_history("Secret", "s")),
    lambda g: list(g.entity_history("Person", "bo")),
    lambda g: g.entity_at("node:Person", "bo"),
    lambda g: g.table("Secret").to_arrow(),
    lambda g: g.table("Person", columns=["salary"]),
    lambda g: g.table("Person", where="salary = 7"),
    lambda g: g.table("Person", where={"salary": 7}),
    lambda g: g.blob("node", "Secret", "s", "photo"),
    lambda g: g.blob("node", "Person", "ada", "photo"),
    lambda g: g.poll_changes(types=["Secret"]),
    lambda g: g.change_baseline(types=["Hides"]),
    lambda g: g.diff("main", "main", types=["Secret"]),
    lambda g: g.compute.degree(nodes=["Secret"]).to_arrow(),
    lambda g: g.compute.pagerank(edges=["Hides"]).to_arrow(),
)


@pytest.mark.parametrize("ask", VERBS, ids=map(str, range(len(VERBS))))
def test_c_acc_003_verbs_that_name_a_type_answer_as_if_it_were_unknown(
    seen: og.Graph, copy: og.Graph, ask: Callable[[og.Graph], Any]
):
    assert told(ask, seen) == told(ask, copy)


def told(ask: Callable[[og.Graph], Any], graph: og.Graph) -> Any:
    """An answer or an error, with all that is said."""
    try:
        return ask(graph)
    except OmnigraphError as error:
        return type(error), error.message, error.hint, error.details


def test_c_acc_003_descriptions_counts_and_suggestions_have_no_hidden_name(
    seen: og.Graph, copy: og.Graph
):
    assert described(seen) == described(copy)
    counts = {each.type_name: each.entity_count for each in seen.snapshot().datasets}
    # The edge that is shown, but begins at a hidden type, is hidden as well.
    assert counts == {"Person": 2, "Company": 1, "WorksAt": 1}
    numbers = {each.type_key: each.rows for each in seen.stats().tables}
    assert numbers == {"node:Person": 2, "node:Company": 1, "edge:WorksAt": 1}
    rows = seen.query("query q() { match { $p: Person } return { $p } }").to_dict()["rows"]
    for text in (str(rows), str(seen.stats().to_dict()), seen.schema_source, str(described(seen))):
        assert "alary" not in text and "ecret" not in text and "ides" not in text
    for commit in seen.list_commits():
        assert commit.affected_nodes is None and commit.affected_edges is None
    text = "query q() { match { $p:  } return { $p. } }"
    from omnigraph.graph.reading import language_answer

    for column in (text.index(":") + 3, text.index(".") + 2):
        answers = [language_answer(graph, text, "gq", 1, column) for graph in (seen, copy)]
        assert {each.label for each in answers[0].completions} == {
            each.label for each in answers[1].completions
        }


def described(graph: og.Graph) -> dict[str, Any]:
    """What a description says of types."""
    types = {each.name: each.to_dict() for each in graph.describe_schema().types}
    return dict(sorted(types.items()))


def test_c_acc_003_how_a_query_ran_tells_no_size_of_a_table_with_hidden_rows(
    seen: og.Graph, copy: og.Graph, whole: og.Graph
):
    def expected(graph: og.Graph) -> list[tuple[int, int | None]]:
        ran = graph.query(WORKS, explain=True).explain
        assert ran is not None and ran.run is not None
        return [(each.rows, each.expected_rows) for each in ran.run.steps]

    assert [rows for rows, _ in expected(seen)] == [rows for rows, _ in expected(copy)]
    assert all(guess is None for _, guess in expected(seen))
    assert any(guess is not None for _, guess in expected(whole.acting_as("act-own")))


PAID = """
version: 2
groups: {analysts: [act-ana]}
rules:
  - id: reads
    allow: {actors: {group: analysts}, actions: [read]}
    types: {Paid: {properties: [slug]}, Note: {properties: [slug]}}
  - id: maintains
    allow: {actors: {group: analysts}, actions: [maintain]}
  - id: writes
    allow: {actors: {group: analysts}, actions: [change], branch_scope: any}
    types: {Paid: {properties: [slug]}}
  - id: shapes
    allow: {actors: {group: analysts}, actions: [schema_apply]}
"""
PAID_SCHEMA = """
node Paid { slug: String @key  salary: I32? @index }
node Note { slug: String @key  text: String? }
node Secret { slug: String @key }
"""


def test_c_acc_003_numbers_and_commits_name_no_hidden_property(tmp_path: Path):
    whole = og.init(tmp_path / "g.omni", schema=PAID_SCHEMA)
    rows = '{"type": "Paid", "data": {"slug": "a", "salary": 7}}\n'
    told = {"embeds": ["Secret.vec"], "pipeline": {"rows": 1}}
    whole.load(
        data=rows,
        mode="append",
        message="embed Secret.vec",
        origin=og.LoadOrigin(metadata=told),
    )
    whole.load(data=rows.replace('"a"', '"b"'), mode="append", origin=og.LoadOrigin(metadata={}))
    whole.ensure_indices()
    ana = open_graph(whole.uri, policy=load_policy(PAID)).acting_as("act-ana")
    (paid,) = (each for each in ana.stats().tables if each.type_key == "node:Paid")
    assert {each.spec.column for each in paid.indexes} == {"id", "slug"}
    assert (paid.rows, paid.bytes) == (2, 0)
    shown = [each.to_dict() for each in ana.list_commits()]
    shown += [ana.show_commit(each["graph_commit_id"]).to_dict() for each in shown]
    for each in shown:
        assert "metadata" not in each and "Secret" not in str(each)
    assert any(each.metadata == told for each in whole.list_commits())


def test_c_acc_003_a_change_of_schema_shows_no_row_and_its_plan_nothing(tmp_path: Path):
    whole = og.init(tmp_path / "g.omni", schema=PAID_SCHEMA)
    whole.load(data='{"type": "Paid", "data": {"slug": "boss", "salary": 7}}\n', mode="append")
    ana = open_graph(whole.uri, policy=load_policy(PAID)).acting_as("act-ana")
    bounded = PAID_SCHEMA.replace("salary: I32? @index }", "salary: I32? @range(salary, 0..5) }")
    with pytest.raises(ConstraintViolation) as raised:
        ana.apply_schema(bounded)
    assert raised.value.details == {}
    assert "boss" not in raised.value.render()
    whole.create_branch("old")
    whole.apply_schema(
        PAID_SCHEMA.replace("node Secret", "node Hidden { slug: String @key }\nnode Secret")
    )
    with pytest.raises(PolicyDenied):
        ana.rebase_schema("old", dry_run=True)


def test_c_acc_005_a_change_of_what_is_hidden_does_not_end_a_feed(tmp_path: Path):
    whole = og.init(tmp_path / "g.omni", schema=PAID_SCHEMA)
    whole.load(data='{"type": "Paid", "data": {"slug": "a", "salary": 7}}\n', mode="append")
    whole.load(data='{"type": "Secret", "data": {"slug": "s"}}\n', mode="append")
    ana = open_graph(whole.uri, policy=load_policy(PAID)).acting_as("act-ana")
    start = ana.poll_changes(start="now").cursor
    changed = PAID_SCHEMA.replace("node Secret { slug: String @key }", "")
    whole.apply_schema(changed.replace("salary: I32?", "salary: I64?"))
    whole.load(data='{"type": "Paid", "data": {"slug": "b", "salary": 8}}\n', mode="append")
    blocks = ana.poll_changes(cursor=start).blocks
    assert [[change.id for change in block.changes] for block in blocks if block.changes] == [["b"]]
    with pytest.raises(ChangeDiffRefused):
        whole.poll_changes(cursor=start)


def test_c_acc_003_what_shows_all_of_a_branch_is_refused(seen: og.Graph, whole: og.Graph):
    for ask in (
        lambda: seen.accepted_ir,
        lambda: seen.plan_schema(SCHEMA),
        lambda: seen.push(seen.uri),
    ):
        with pytest.raises(PolicyDenied):
            ask()
    with pytest.raises(PolicyDenied):
        whole.query("query q() { match { $p: Person } return { $p } }")
    assert whole.acting_as("act-own").snapshot().datasets[0].entity_count


def test_exports_show_what_the_right_to_export_shows(whole: og.Graph):
    bundle = """
version: 2
groups: {readers: [act-r]}
rules:
  - id: reads
    allow: {actors: {group: readers}, actions: [read]}
  - id: exports
    allow: {actors: {group: readers}, actions: [export]}
    types: {Company: all}
"""
    graph = og.open(whole.uri, policy=load_policy(bundle)).acting_as("act-r")
    assert len(graph.snapshot().datasets) == 6
    assert [json.loads(line)["type"] for line in graph.export()] == ["Company"]
    assert [each.type_name for each in graph.change_baseline()] == ["Company"]


def test_c_acc_006_searches_give_k_visible_rows(seen: og.Graph, copy: og.Graph, tmp_path: Path):
    """The hidden row is the best of all of them, and takes no place."""
    for text in (
        (
            "query q() { match { $p: Person } return { $p.slug } "
            "order { nearest($p.vec, [0.0, 0.0]) } limit 2 }"
        ),
        (
            'query q() { match { $p: Person } return { $p.slug, bm25($p.bio, "red fox") as s } '
            'order { bm25($p.bio, "red fox") desc } limit 2 }'
        ),
        'query q() { match { $p: Person  search($p.bio, "red") } return { $p.slug } limit 2 }',
        (
            "query q() { match { $p: Person } return { $p.slug } order "
            '{ rrf(nearest($p.vec, [0.0, 0.0]), bm25($p.bio, "fox")) desc } limit 2 }'
        ),
    ):
        wanted = copy.query(text).to_pylist()
        assert seen.query(text).to_pylist() == wanted, text
        # Anew, so that storage answers what is not in memory.
        fresh = og.open(seen.uri, policy=load_policy(BUNDLE)).acting_as(ANA)
        assert fresh.query(text).to_pylist() == wanted, text
        assert wanted


WORKS = "query q() { match { $p: Person  $p worksAt $c } return { $c.name } }"


def test_c_acc_014_explain_shows_the_conditions_that_a_view_adds(seen: og.Graph, whole: og.Graph):
    added = (
        "  Visible Person where $row.city = $actor.city (rule analysts-read)",
        "  Visible WorksAt where its src is visible",
    )
    assert seen.explain(WORKS).plan[-2:] == added
    ran = seen.query(WORKS, explain=True).explain
    assert ran is not None and ran.plan[-2:] == added and ran.run is not None
    plain = whole.acting_as("act-own").explain(WORKS).plan
    assert plain == seen.explain(WORKS).plan[:-2]


def test_c_acc_014_policy_explain_shows_view_conditions_and_rules(
    tmp_path: Path, run_command: Callable[..., Any]
):
    bundle, schema, query = (tmp_path / name for name in ("policy.yaml", "graph.pg", "q.gq"))
    bundle.write_text(BUNDLE)
    schema.write_text(SCHEMA)
    query.write_text(WORKS)
    files = ["--file", str(bundle), "--schema", str(schema), "--query", str(query)]
    asked = ["policy", "explain", *files, "--actor", "act-ana", "--action", "read"]
    lines = run_command(*asked, "--claims", '{"city": "Oslo"}')
    person = next(line.strip() for line in lines.splitlines() if "  Person: " in line)
    named, _, rows = person.removeprefix("Person: ").partition(" where ")
    assert set(named.split(", ")) == {"slug", "name", "city", "bio", "vec"}
    assert rows == "$row.city = $actor.city (rule analysts-read) (by analysts-read)"
    assert "Visible WorksAt where its src is visible" in lines
    told = json.loads(run_command(*asked, "--claims", '{"city": "Oslo"}', "--json"))
    assert {each["type"] for each in told["view"]} == {"Company", "Person", "WorksAt"}
    # Without the claim, the condition grants nothing.
    assert " where false (by analysts-read)" in run_command(*asked)


@pytest.fixture
def run_command(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Runs a command in this process; returns what it prints."""

    def run(*words: str) -> str:
        from omnigraph.cli.main import main

        assert main(list(words)) == 0
        return capsys.readouterr().out

    return run


@pytest.mark.spark
@pytest.mark.xdist_group("spark_queries")
def test_c_acc_005_frames_show_what_a_view_shows(seen: og.Graph, spark: Any, tmp_path: Path):
    frame = seen.frame("Person")
    assert set(frame.columns) == {"id", "slug", "name", "city", "bio", "vec"}
    assert sorted(row.id for row in frame.collect()) == ["ada", "cy"]
    edges = seen.frame("WorksAt", columns=["src", "since"], where="since < 9").collect()
    assert [(row.src, row.since) for row in edges] == [("ada", 1)]
    # A condition that fails on the hidden edge would tell that it exists.
    failing = "1 / (since - 2) < 9"
    for tried in (seen.frame("WorksAt", where=failing), seen.frame("WorksAt").where(failing)):
        assert [row.src for row in tried.collect()] == ["ada"]
    (tmp_path / "policy.yaml").write_text(BUNDLE)
    options = {"policy": str(tmp_path / "policy.yaml"), "actor": "act-ana"}
    read = spark.read.format("omnigraph").options(**options, claims='{"city": "Oslo"}')
    whole = read.option("type", "Person").load(seen.uri)
    assert sorted(row.id for row in whole.collect()) == ["ada", "cy"]
    assert set(whole.columns) == set(frame.columns)
    with pytest.raises(OmnigraphError):
        seen.frame("Secret")
    with pytest.raises(OmnigraphError):
        seen.frame("Person", columns=["salary"])


@pytest.mark.spark
@pytest.mark.xdist_group("spark_queries")
@pytest.mark.usefixtures("spark")
def test_c_acc_012_reads_on_spark_have_a_line_in_the_audit(whole: og.Graph, tmp_path: Path):
    lines = tmp_path / "audit.jsonl"
    ana = open_graph(whole.uri, policy=load_policy(BUNDLE), audit=lines).acting_as(ANA)
    assert ana.frame("Person").count() == 2
    ana.query("query q() { match { $p: Person } return { $p.name } }", engine="spark").to_pylist()
    found = [dict(each.facts) for each in read_entries([lines], AuditFilter())]
    assert [(e["verb"], e["types"], e["rules"]) for e in found if e["event"] == "access"] == [
        ("frame", ["Person"], ["analysts-read"]),
        ("query", ["Person"], ["analysts-read"]),
    ]


RENAMED = """
version: 2
groups: {readers: [act-ana]}
rules:
  - id: reads
    allow: {actors: {group: readers}, actions: [read], branch_scope: any}
    types: {Person: {properties: [name, ticket], where: '$row.age > 1'}}
"""


def test_c_acc_005_rules_name_what_is_called_so_in_the_schema_that_a_commit_is_shown_with(
    tmp_path: Path,
):
    schema = "node Person { name: String @key  code: String?  age: I32? }"
    whole = og.init(tmp_path / "g.omni", schema=schema)
    whole.mutate('query w { insert Person { name: "ada", code: "c", age: 2 } }')
    first = whole.list_commits()[0].graph_commit_id
    whole.apply_schema(schema.replace("code: String?", 'ticket: String? @rename_from("code")'))
    whole.mutate('query w { update Person set { ticket: "d" } where name = "ada" }')
    last = whole.list_commits()[0].graph_commit_id
    ana = open_graph(whole.uri, policy=load_policy(RENAMED)).acting_as("act-ana")
    ask = "query q { match { $p: Person } return { $p.ticket as ticket } }"
    assert ana.query(ask, snapshot=first).to_pylist() == [{"ticket": "c"}]
    assert ana.entity_at("node:Person", "ada", snapshot=first) == {
        "id": "ada",
        "name": "ada",
        "ticket": "c",
    }

    def shown(commit: str) -> list[dict[str, Any]]:
        return [dict(each.after.properties) for each in ana.commit_changes(commit) if each.after]

    assert shown(first) == [{"name": "ada"}]
    assert shown(last) == [{"name": "ada", "ticket": "d"}]


def test_saved_adjacency_is_not_that_of_an_actor(seen: og.Graph, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tables, "EDGES_ALWAYS_SORTED", 0)
    fresh = og.open(seen.uri, policy=load_policy(BUNDLE)).acting_as(ANA)
    reader, _ = fresh._seen(fresh._opened.pinned(ReadTarget("main")))
    engine = fresh._opened.engine("local")
    assert isinstance(engine, LocalEngine)
    found = tables_of(reader)(engine.memory, reader, engine.settings, {}, {})
    edges = found.cached_edges("WorksAt", "Person", "Company")
    assert edges._saved is None and edges.view.count == 1
