"""Changing the schema of a live graph."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

import omnigraph as og
from omnigraph.commit.kernel import Kernel
from omnigraph.commit.leases import GRAPH_SCOPE, WriteSettings, branch_scope
from omnigraph.commit.schema.lock import take_lock
from omnigraph.effects.failpoints import Failpoint, armed
from omnigraph.effects.uri import Root
from omnigraph.errors import (
    CompileError,
    Conflict,
    InputError,
    ReadSetChanged,
    RecoveryRequired,
    UncoveredDrift,
    UnsupportedSchemaChange,
)
from omnigraph.model.ids import SCHEMA_APPLY_LOCK
from omnigraph.storage.manifest import TableEntry

BASE = """
node Person { name: String @key  age: I32?  mood: enum(calm, cross)? }
node City { name: String @key  size: I32? }
edge LivesIn: Person -> City { since: Date? }
"""
PEOPLE = [
    {"type": "Person", "data": {"name": "ada", "age": 36, "mood": "calm"}},
    {"type": "Person", "data": {"name": "bo", "age": None, "mood": None}},
    {"type": "City", "data": {"name": "rome", "size": 3}},
    {"edge": "LivesIn", "from": "ada", "to": "rome", "data": {"since": "2024-05-01"}},
]
ADD = "query add($n: String) { insert Person { name: $n } }"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "graph.omni"


@pytest.fixture
def graph(root: Path) -> og.Graph:
    graph = og.init(root, BASE)
    graph.load(data=b"\n".join(map(orjson.dumps, PEOPLE)), mode="append")
    return graph


def records(graph: og.Graph, **where: Any) -> list[dict[str, Any]]:
    """Every entity as it is exported, without ids."""
    found = [orjson.loads(line) for line in b"".join(graph.export(**where)).splitlines()]
    for record in found:
        record["data"].pop("id")
    return found


def nodes(graph: og.Graph, type_name: str, **where: Any) -> list[dict[str, Any]]:
    return [r["data"] for r in records(graph, types=[type_name], **where)]


def entries(graph: og.Graph) -> dict[str, TableEntry]:
    state = graph._kernel.manifest.refreshed("main").state
    return dict(state.head_snapshot().tables)


def files(root: Path) -> set[str]:
    """Every data file of every table."""
    return {str(p.relative_to(root)) for p in root.glob("*/*/data/*")}


def head(graph: og.Graph) -> str:
    return graph.snapshot().graph_commit_id


def objects(root: Path) -> list[str]:
    return sorted(path.name for path in root.glob("*schema*") if path.is_file())


def require_settled(graph: og.Graph, root: Path) -> None:
    """Nothing of an apply is left: no sidecar, no staged object, no lock, no drift."""
    kernel = graph._kernel
    assert kernel.sidecars.names() == []
    assert objects(root) == ["__schema_state.json", "_schema.ir.json", "_schema.pg"]
    assert SCHEMA_APPLY_LOCK not in kernel.manifest.main.refresh().branches
    capture = kernel.capture(kernel.manifest.main, "")
    for entry in capture.snapshot.tables.values():
        assert kernel.lance.open(capture.reader.where(entry)).version == entry.version


# --- what changes no data -------------------------------------------------------------------------


def test_a_plan_of_a_live_graph_changes_nothing(graph: og.Graph) -> None:
    before = head(graph), entries(graph)
    planned = graph.plan_schema(BASE.replace("age: I32?", "age: I64?"))
    assert [step.kind for step in planned.plan.steps] == ["widen_property"]
    assert (head(graph), entries(graph)) == before


def test_c_sch_061_equal_schemas_publish_nothing(graph: og.Graph, root: Path) -> None:
    version = graph.snapshot().graph_manifest_version
    receipt = graph.apply_schema(f"// a comment\n{BASE}")
    assert (receipt.supported, receipt.applied, receipt.steps) == (True, False, ())
    assert receipt.graph_manifest_version == version == graph.snapshot().graph_manifest_version
    assert len(graph.list_commits()) == 2


def test_c_sch_061_an_unsupported_change_leaves_the_graph_as_it_was_and_writable(
    graph: og.Graph, root: Path
) -> None:
    before = graph.snapshot()
    with pytest.raises(UnsupportedSchemaChange, match="OG-MF-106"):
        graph.apply_schema(BASE.replace("age: I32?", "age: String?"))
    assert graph.snapshot() == before
    require_settled(graph, root)
    graph.mutate(ADD, {"n": "cy"})


def test_a_schema_that_does_not_compile_is_refused_before_anything_is_touched(
    graph: og.Graph, root: Path
) -> None:
    before = graph.snapshot()
    with pytest.raises(CompileError):
        graph.apply_schema("node Person {")
    assert graph.snapshot() == before
    require_settled(graph, root)


METADATA = {
    "an index": BASE.replace("age: I32?", "age: I32? @index"),
    "enum values": BASE.replace("enum(calm, cross)", "enum(calm, cross, glad)"),
    "an enum becomes a string": BASE.replace("enum(calm, cross)?", "String?"),
    "a description": BASE.replace("node City {", 'node City @description("a place") {'),
    "a default": BASE.replace("age: I32?", "age: I32? @default(7)"),
    "an interface": f"{BASE}interface Named {{ name: String }}\n",
}


@pytest.mark.parametrize("desired", METADATA.values(), ids=METADATA)
def test_c_sch_060_what_only_the_contract_knows_touches_no_table(
    graph: og.Graph, root: Path, desired: str
) -> None:
    before, stored, commits = entries(graph), files(root), len(graph.list_commits())
    receipt = graph.apply_schema(desired, actor="act-ana")
    assert receipt.applied
    assert (entries(graph), files(root)) == (before, stored)
    newest = graph.list_commits()[0]
    assert len(graph.list_commits()) == commits + 1
    assert (newest.kind, newest.actor_id) == ("schema", "act-ana")
    assert newest.graph_manifest_version == receipt.graph_manifest_version
    assert graph.schema_source == desired
    require_settled(graph, root)


def test_c_sch_058_a_new_enum_value_is_accepted_at_once_also_after_a_rename(
    graph: og.Graph,
) -> None:
    wider = BASE.replace("mood: enum(calm, cross)?", "mood: enum(calm, cross, glad)?")
    graph.apply_schema(wider)
    graph.mutate('query q { update Person set { mood: "glad" } where name = "bo" }')
    renamed = wider.replace("mood: enum(calm, cross, glad)?", 'air: enum(calm, cross, glad, sad)?'
                            ' @rename_from("mood")')  # fmt: skip
    graph.apply_schema(renamed)
    graph.mutate('query q { update Person set { air: "sad" } where name = "ada" }')
    assert [row["air"] for row in nodes(graph, "Person")] == ["sad", "glad"]
    with pytest.raises(UnsupportedSchemaChange, match="OG-MF-106"):
        graph.apply_schema(renamed.replace("glad, ", ""))


# --- types ----------------------------------------------------------------------------------------


def test_new_types_are_empty_and_usable_at_once(graph: og.Graph, root: Path) -> None:
    planets = "node Planet { name: String @key }\nedge Orbits: City -> Planet\n"
    graph.apply_schema(BASE + planets)
    assert nodes(graph, "Planet") == []
    graph.mutate(
        'query q { insert Planet { name: "earth" } insert Orbits { from: "rome", to: "earth" } }'
    )
    found = graph.query("query q { match { $c: City  $c orbits $p } return { $p.name as n } }")
    assert found.to_pylist() == [{"n": "earth"}]
    require_settled(graph, root)


def test_c_sto_003_a_renamed_type_keeps_identity_location_and_version(
    graph: og.Graph, root: Path
) -> None:
    before, stored = entries(graph), files(root)
    graph.apply_schema(
        BASE.replace("node Person {", 'node Human @rename_from("Person") {').replace(
            ": Person ->", ": Human ->"
        )
    )
    after = entries(graph)
    assert files(root) == stored
    assert after.keys() == {"node:Human", "node:City", "edge:LivesIn"}
    old, new = before["node:Person"], after["node:Human"]
    assert (new.identity, new.location, new.version) == (old.identity, old.location, old.version)
    assert [row["name"] for row in nodes(graph, "Human")] == ["ada", "bo"]
    found = graph.query("query q { match { $p: Human  $p livesIn $c } return { $c.name as n } }")
    assert found.to_pylist() == [{"n": "rome"}]


def test_c_sto_004_a_type_dropped_and_added_again_is_another_one(
    graph: og.Graph, root: Path
) -> None:
    first = entries(graph)["node:City"]
    without = BASE.splitlines()[1]
    graph.apply_schema(without)
    assert entries(graph).keys() == {"node:Person"}
    graph.apply_schema(BASE)
    again = entries(graph)["node:City"]
    assert again.identity != first.identity
    assert again.location != first.location
    assert (again.version, again.row_count) == (1, 0)
    assert nodes(graph, "City") == []
    graph.mutate('query q { insert City { name: "oslo" } }')
    assert [row["name"] for row in nodes(graph, "City")] == ["oslo"]
    require_settled(graph, root)


def test_foreign_data_where_a_new_table_belongs_is_refused(graph: og.Graph, root: Path) -> None:
    planned = graph.plan_schema(BASE + "node Planet { name: String @key }\n")
    place = root / planned.compiled.catalog.nodes["Planet"].table_path
    place.mkdir(parents=True)
    (place / "mine.txt").write_text("precious")
    before = graph.snapshot()
    with pytest.raises(Conflict, match="already holds data"):
        graph.apply_schema(BASE + "node Planet { name: String @key }\n")
    assert (place / "mine.txt").read_text() == "precious"
    assert graph.snapshot() == before
    require_settled(graph, root)


# --- properties -----------------------------------------------------------------------------------


def test_c_sch_057_a_nullable_property_is_null_and_can_be_written(
    graph: og.Graph, root: Path
) -> None:
    stored = files(root)
    graph.apply_schema(
        BASE.replace("age: I32?", "age: I32?  tags: [String]?  leaf: Vector(4)?  scan: Blob?")
    )
    assert files(root) == stored, "a column without values needs no file"
    rows = nodes(graph, "Person")
    assert [(r["name"], r["tags"], r["leaf"], r["scan"]) for r in rows] == [
        ("ada", None, None, None),
        ("bo", None, None, None),
    ]
    graph.mutate('query q { update Person set { tags: ["x"] } where name = "bo" }')
    assert [row["tags"] for row in nodes(graph, "Person")] == [None, ["x"]]


def test_c_sch_057_a_required_property_needs_a_default(graph: og.Graph) -> None:
    with pytest.raises(UnsupportedSchemaChange, match=r"\[OG-MF-103\].*requires a backfill"):
        graph.apply_schema(BASE.replace("age: I32?", "age: I32?  rank: I32"))


DEFAULTS = [
    ("I64 @default(5)", 5),
    ("F64 @default(0.5)", 0.5),
    ("Bool @default(true)", True),
    ('String @default("it\'s \\"quoted\\"")', 'it\'s "quoted"'),
    ("enum(low, high) @default(high)", "high"),
    ('Date @default("2024-02-29")', 19782),
    ("U64? @default(18446744073709551615)", 2**64 - 1),
]


@pytest.mark.parametrize(("declared", "value"), DEFAULTS)
def test_entities_that_are_there_get_the_default_of_a_new_property(
    graph: og.Graph, root: Path, declared: str, value: object
) -> None:
    graph.mutate('query q { delete Person where name = "bo" }')
    graph.mutate(ADD, {"n": "cy"})
    graph.apply_schema(BASE.replace("age: I32?", f"age: I32?  rank: {declared}"))
    assert [row["rank"] for row in nodes(graph, "Person")] == [value, value]
    graph.mutate(ADD, {"n": "di"})
    assert len(nodes(graph, "Person")) == 3
    require_settled(graph, root)


def test_a_renamed_property_keeps_its_values_and_writes_no_file(
    graph: og.Graph, root: Path
) -> None:
    before, stored = records(graph), files(root)
    graph.apply_schema(BASE.replace("age: I32?", 'years: I32? @rename_from("age")'))
    assert files(root) == stored
    assert [(r["name"], r["years"]) for r in nodes(graph, "Person")] == [("ada", 36), ("bo", None)]
    assert len(records(graph)) == len(before)
    graph.mutate('query q { update Person set { years: 1 } where name = "bo" }')
    assert [row["years"] for row in nodes(graph, "Person")] == [36, 1]


def test_a_renamed_key_keeps_the_ids_of_its_nodes(graph: og.Graph) -> None:
    graph.apply_schema(
        BASE.replace(
            "Person { name: String @key", 'Person { nick: String @key @rename_from("name")'
        )
    )
    found = graph.query("query q { match { $p: Person  $p livesIn $c } return { $p.nick as n } }")
    assert found.to_pylist() == [{"n": "ada"}]
    graph.mutate('query q { insert Person { nick: "ada", age: 40 } }')
    assert [(r["nick"], r["age"]) for r in nodes(graph, "Person")] == [("ada", 40), ("bo", None)]


WIDENINGS = [
    ("I32", "I64", [-(2**31), 0, 2**31 - 1], 2**40),
    ("U32", "U64", [0, 2**32 - 1], 2**63),
    ("F32", "F64", [0.5, -2.0], 0.1),
]


@pytest.mark.parametrize(("old", "new", "values", "beyond"), WIDENINGS)
def test_a_wider_type_keeps_every_value(
    root: Path, old: str, new: str, values: list[Any], beyond: Any
) -> None:
    text = f"node Slot {{ name: String @key  value: {old}? @index }}"
    graph = og.init(root, text)
    data = [
        {"type": "Slot", "data": {"name": f"s{at}", "value": value}}
        for at, value in enumerate([*values, None])
    ]
    graph.load(data=b"\n".join(map(orjson.dumps, data)), mode="append")
    graph.ensure_indices()
    graph.apply_schema(text.replace(f": {old}?", f": {new}?"))
    assert [row["value"] for row in nodes(graph, "Slot")] == [*values, None]
    add = f'query q($v: {new}) {{ insert Slot {{ name: "t", value: $v }} }}'
    graph.mutate(add, {"v": beyond})
    found = graph.query(
        f"query q($v: {new}) {{ match {{ $s: Slot {{ value: $v }} }} return {{ $s.name as n }} }}",
        {"v": beyond},
    )
    assert found.to_pylist() == [{"n": "t"}]
    require_settled(graph, root)


def test_a_required_property_may_become_nullable(graph: og.Graph, root: Path) -> None:
    graph.apply_schema(BASE.replace("age: I32?", "age: I32?  rank: I32 @default(1)"))
    stored = files(root)
    graph.apply_schema(BASE.replace("age: I32?", "age: I32?  rank: I32?"))
    assert files(root) == stored
    graph.mutate('query q { update Person set { rank: null } where name = "bo" }')
    assert [row["rank"] for row in nodes(graph, "Person")] == [1, None]


@pytest.mark.parametrize("declared", ["age: I32?", "mood: enum(calm, cross)?"])
def test_a_dropped_property_added_again_does_not_revive_its_values(
    graph: og.Graph, declared: str
) -> None:
    """Whichever column it was: the last one has the highest field id, which must not be reused."""
    name = declared.partition(":")[0]
    graph.apply_schema(BASE.replace(declared, ""))
    assert name not in nodes(graph, "Person")[0]
    graph.apply_schema(BASE)
    assert [row[name] for row in nodes(graph, "Person")] == [None, None]


def test_a_property_that_takes_over_a_name_shows_its_own_values(root: Path) -> None:
    """In a handle, too, that has read the column of that name before."""
    graph = og.init(root, "node Slot { name: String @key  a: I32?  b: I32? }")
    graph.mutate('query q { insert Slot { name: "s", a: 1, b: 2 } }')
    show = "query q { match { $s: Slot } return { $s.a as a } }"
    assert graph.query(show).to_pylist() == [{"a": 1}]
    graph.apply_schema("node Slot { name: String @key  b: I32? }")
    graph.apply_schema('node Slot { name: String @key  a: I32? @rename_from("b") }')
    assert graph.query(show).to_pylist() == [{"a": 2}]


def test_everything_at_once_is_one_commit(graph: og.Graph, root: Path) -> None:
    desired = """
    node Human @rename_from("Person") {
        name: String @key
        years: I64? @rename_from("age")
        level: I32 @default(3)
        tags: [String]?
    }
    node Town @rename_from("City") { name: String @key  size: I32? @index }
    node Planet { name: String @key }
    edge LivesIn: Human -> Town { from_day: Date? @rename_from("since") }
    """
    commits = len(graph.list_commits())
    graph.apply_schema(desired)
    assert len(graph.list_commits()) == commits + 1
    assert records(graph) == [
        {"edge": "LivesIn", "from": "ada", "to": "rome", "data": {"from_day": 19844}},
        {"type": "Human", "data": {"level": 3, "name": "ada", "tags": None, "years": 36}},
        {"type": "Human", "data": {"level": 3, "name": "bo", "tags": None, "years": None}},
        {"type": "Town", "data": {"name": "rome", "size": 3}},
    ]
    graph.ensure_indices()
    graph.optimize()
    assert len(records(graph)) == 4
    require_settled(graph, root)


def test_blobs_survive_every_change_of_other_columns(root: Path) -> None:
    text = "node Memo { name: String @key  scan: Blob?  n: I32? }"
    graph = og.init(root, text)
    graph.mutate(
        'query q($b: Blob) { insert Memo { name: "m", scan: $b, n: 1 } }', {"b": "base64:aGVsbG8="}
    )
    changed = text.replace("scan: Blob?", 'page: Blob? @rename_from("scan")')
    graph.apply_schema(changed.replace("n: I32?", "n: I64?  m: I32 @default(2)"))
    (memo,) = nodes(graph, "Memo")
    assert memo == {"m": 2, "n": 1, "name": "m", "page": "base64:aGVsbG8="}


def test_c_rec_011_ten_applies_leave_no_gap_between_pin_and_head(
    graph: og.Graph, root: Path
) -> None:
    for at in range(10):
        with (
            armed({Failpoint.SCHEMA_APPLY_POST_TABLE_COMMIT: "error"}),
            pytest.raises(RecoveryRequired),
        ):
            graph.apply_schema(BASE.replace("age: I32?", f"age: I32?  extra{at}: I32?"))
        graph.recover()
        require_settled(graph, root)
    graph.apply_schema(BASE.replace("age: I32?", "age: I32?  extra: I32?"))
    require_settled(graph, root)


def test_a_table_changed_behind_the_graphs_back_is_not_changed(graph: og.Graph, root: Path) -> None:
    entry = entries(graph)["node:Person"]
    kernel = graph._kernel
    import lance

    lance.dataset(str(root / entry.location)).delete("name = 'bo'")
    with pytest.raises(UncoveredDrift):
        graph.apply_schema(BASE.replace("age: I32?", "age: I32?  rank: I32?"))
    assert kernel.sidecars.names() == []
    assert SCHEMA_APPLY_LOCK not in kernel.manifest.main.refresh().branches


# --- beside others --------------------------------------------------------------------------------


@pytest.fixture
def held(graph: og.Graph, root: Path) -> Iterator[og.Graph]:
    """Another process in the middle of a schema apply."""
    other = Kernel.of(Root.parse(root))
    with (
        other.leases.hold(GRAPH_SCOPE, "op-other"),
        other.leases.hold(branch_scope("main"), "op-other") as lease,
    ):
        take_lock(other, lease, "op-other", None)
        yield graph
    # Its process dies here without taking anything back.


def test_c_sch_062_c_wrt_047_a_second_apply_and_every_writer_are_refused_while_one_runs(
    held: og.Graph, root: Path
) -> None:
    with pytest.raises(Conflict, match=r"(?m)^schema apply is already in progress$"):
        held.apply_schema(BASE.replace("age: I32?", ""))
    with pytest.raises(Conflict, match=r"^mutation is unavailable while schema apply is in progr"):
        held.mutate(ADD, {"n": "cy"})
    with pytest.raises(Conflict, match=r"^load is unavailable while schema apply"):
        held.load(data=orjson.dumps(PEOPLE[0]), mode="merge")
    with pytest.raises(Conflict, match="unavailable while schema apply is in progress"):
        held.create_branch("review")
    with pytest.raises(Conflict, match="unavailable while schema apply is in progress"):
        held.optimize()
    with pytest.raises(Conflict, match="unavailable while schema apply is in progress"):
        held.ensure_indices()
    assert held.list_branches() == ["main"]
    assert len(nodes(held, "Person")) == 2, "readers go on"


def test_a_lock_whose_owner_is_gone_is_removed_by_the_next_writer(
    graph: og.Graph, root: Path
) -> None:
    dead = Kernel.of(Root.parse(root), WriteSettings())
    with dead.leases.hold(branch_scope("main"), "op-dead") as lease:
        take_lock(dead, lease, "op-dead", None)
    assert og.open(root, "read_only").list_branches() == ["main"]
    graph.mutate(ADD, {"n": "cy"})
    require_settled(graph, root)


def test_two_applies_in_one_process_come_one_after_the_other(graph: og.Graph, root: Path) -> None:
    texts = [BASE + f"node T{at} {{ name: String @key }}\n" for at in range(2)]
    others: list[object] = []

    def second(_: Failpoint) -> None:
        def run() -> None:
            try:
                others.append(graph.apply_schema(texts[1]))
            except Exception as error:  # told to the test below
                others.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        threads.append(thread)

    threads: list[threading.Thread] = []
    with armed({Failpoint.SCHEMA_APPLY_AFTER_STAGING_WRITE: second}):
        graph.apply_schema(texts[0])
    for thread in threads:
        thread.join(30)
    # It was planned again on the first one's result: T0 is dropped, T1 added.
    (receipt, *_) = others
    assert [s["kind"] for s in receipt.steps] == ["add_type", "drop_type"]  # type: ignore[attr-defined]
    require_settled(graph, root)


def overtaken_by_apply(graph: og.Graph) -> dict[Failpoint, Any]:
    """Another process changes the schema after a write was staged."""

    def overtake(_: Failpoint) -> None:
        if not done:
            done.append(True)
            og.open(graph.uri).apply_schema(BASE.replace("age: I32?", "age: I32?  rank: I32?"))

    done: list[bool] = []
    return {Failpoint.MUTATION_POST_STAGE_PRE_EFFECT_GATE: overtake}


def test_an_insert_prepared_before_an_apply_is_prepared_again(graph: og.Graph, root: Path) -> None:
    with armed(overtaken_by_apply(graph)):
        graph.mutate(ADD, {"n": "cy"})
    assert [row["name"] for row in nodes(graph, "Person")] == ["ada", "bo", "cy"]
    require_settled(graph, root)


def test_an_update_prepared_before_an_apply_is_refused(graph: og.Graph) -> None:
    with armed(overtaken_by_apply(graph)), pytest.raises((ReadSetChanged, Conflict)):
        graph.mutate('query q { update Person set { age: 9 } where name = "bo" }')
    assert [row["age"] for row in nodes(graph, "Person")] == [36, None]


def test_a_running_handle_sees_new_types_and_names(graph: og.Graph, root: Path) -> None:
    other = og.open(root)
    reader = og.open(root, "read_only")
    ages = "query q { match { $p: Person } return { $p.age as n } order { n } }"
    for handle in (other, reader):
        assert handle.query(ages).to_pylist() == [{"n": None}, {"n": 36}]
    graph.apply_schema(
        BASE.replace("age: I32?", 'years: I32? @rename_from("age")')
        + "node Planet { name: String @key }\n"
    )
    years = ages.replace("age", "years")
    for handle in (other, reader):
        assert handle.query(years).to_pylist() == [{"n": None}, {"n": 36}]
        with pytest.raises(CompileError):
            handle.query(ages)
    other.mutate('query q { insert Planet { name: "earth" } }')
    count = "query q { match { $p: Planet } return { count(*) as n } }"
    assert reader.query(count).to_pylist() == [{"n": 1}]


def test_a_handle_that_only_reads_cannot_apply(graph: og.Graph, root: Path) -> None:
    with pytest.raises(InputError, match="opened for writing"):
        og.open(root, "read_only").apply_schema(BASE)


def test_the_example_of_the_guide_does_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    guide = (Path(__file__).parents[2] / "docs/guide/schema.md").read_text(encoding="utf-8")
    section = guide.partition("## Evolving a live graph")[2]
    example = section.partition("```python\n")[2].partition("```")[0]
    monkeypatch.chdir(tmp_path)
    said: dict[str, Any] = {}
    exec(example, said)
    graph, years = said["graph"], said["years"]
    assert graph.query(years).to_pylist() == [{"a.years": 36, "a.active": True}]
    then = graph.query(years, snapshot=said["before"]).to_pylist()
    assert then == [{"a.years": 36, "a.active": None}]
