"""Writes through the facade: one query or load, one commit, and how writers meet."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.effects.failpoints import Failpoint, armed
from omnigraph.errors import (
    Conflict,
    ConstraintViolation,
    ExpectedVersionMismatch,
    InputError,
    KeyConflict,
    NotFound,
    OmnigraphError,
    PreconditionFailed,
    QueryTypeError,
    ReadSetChanged,
    RecoveryRequired,
)

SCHEMA = """
node Person { name: String @key  age: I32?  email: String? @unique }
node Note { text: String }
edge Knows: Person -> Person @card(0..2) { since: Date? }
edge About: Note -> Person
"""
ADD = "query add($n: String) { insert Person { name: $n } }"
AGE = "query age($n: String, $a: I32) { update Person set { age: $a } where name = $n }"
NOTE = "query note($t: String) { insert Note { text: $t } }"
KNOWS = "query knows($a: String, $b: String) { insert Knows { from: $a, to: $b } }"


@pytest.fixture
def graph(tmp_path: Path) -> og.Graph:
    return og.init(tmp_path / "graph.omni", schema=SCHEMA)


def ids(graph: og.Graph, kind: str, name: str, branch: str = "main") -> list[str]:
    import orjson

    lines = b"".join(graph.export(branch=branch, types=[name])).splitlines()
    return [orjson.loads(line)["data"]["id"] for line in lines]


def persons(graph: og.Graph, branch: str = "main") -> list[str]:
    return ids(graph, "node", "Person", branch)


def age(graph: og.Graph, name: str) -> object:
    found = graph.entity_at("node:Person", name)
    assert found is not None
    return found["age"]


def meanwhile(other: object) -> object:
    """Run something once, between a write's preparation and its effects."""
    done: list[bool] = []

    def act(_: Failpoint) -> None:
        if not done:
            done.append(True)
            other()  # type: ignore[operator]

    return armed({Failpoint.MUTATION_POST_STAGE_PRE_EFFECT_GATE: act})


# --- one commit -----------------------------------------------------------------------------------


def test_c_wrt_001_a_mutation_of_several_statements_advances_the_manifest_once(
    graph: og.Graph,
) -> None:
    before = graph.snapshot().graph_manifest_version
    receipt = graph.mutate(
        'query q { insert Person { name: "a" } insert Person { name: "b" } '
        'insert Knows { from: "a", to: "b" } }'
    )
    assert (receipt.affected_nodes, receipt.affected_edges) == (2, 1)
    assert graph.snapshot().graph_manifest_version == before + 1
    assert len(graph.list_commits()) == 2


def test_c_wrt_002_an_edge_after_its_new_endpoint_lands_with_it_or_not_at_all(
    graph: og.Graph,
) -> None:
    with pytest.raises(ConstraintViolation, match="dst 'missing' not found in Person"):
        graph.mutate(
            'query q { insert Person { name: "a" } insert Knows { from: "a", to: "missing" } }'
        )
    assert persons(graph) == []


def test_c_wrt_003_a_failing_later_statement_leaves_everything_as_it_was(graph: og.Graph) -> None:
    graph.mutate(ADD, {"n": "kept"})
    before = graph.snapshot()
    query = (
        'query q($a: I32) { insert Note { text: "x" } '
        'insert Person { name: "n", age: $a } insert Knows { from: "n", to: "nobody" } }'
    )
    with pytest.raises(ConstraintViolation):
        graph.mutate(query, {"a": 1})
    assert graph.snapshot() == before
    graph.mutate(ADD, {"n": "next"})
    assert persons(graph) == ["kept", "next"]


@pytest.mark.parametrize("mode", ["append", "merge", "overwrite"])
@pytest.mark.parametrize(
    "edges",
    [
        '{"edge":"Knows","from":"a","to":"nobody","data":{"id":"k"}}',
        "\n".join(
            f'{{"edge":"Knows","from":"a","to":"a","data":{{"id":"k{i}"}}}}' for i in range(3)
        ),
    ],
)
def test_c_wrt_004_a_load_that_breaks_endpoints_or_cardinality_leaves_nothing(
    graph: og.Graph, mode: str, edges: str
) -> None:
    before = graph.snapshot()
    data = '{"type":"Person","data":{"name":"a"}}\n' + edges
    with pytest.raises(ConstraintViolation):
        graph.load(data=data, mode=mode)  # type: ignore[arg-type]
    assert graph.snapshot() == before


def test_c_wrt_012_a_mutation_without_a_match_makes_no_commit(graph: og.Graph) -> None:
    before = graph.snapshot()
    receipt = graph.mutate(AGE, {"n": "nobody", "a": 1})
    assert (receipt.affected_nodes, receipt.commit) == (0, None)
    assert graph.snapshot() == before


def test_c_wrt_013_the_receipt_is_the_published_commit_even_when_another_follows(
    graph: og.Graph,
) -> None:
    first = graph.mutate(ADD, {"n": "a"}).commit
    second = graph.mutate(ADD, {"n": "b"}).commit
    assert first is not None and second is not None
    assert graph.show_commit(first.graph_commit_id) == first
    assert second.parent_commit_id == first.graph_commit_id


def test_c_wrt_014_the_actor_is_on_the_commit(graph: og.Graph) -> None:
    graph.mutate(ADD, {"n": "a"}, actor="act-ana")
    assert graph.list_commits()[0].actor_id == "act-ana"
    assert [c.actor_id for c in graph.list_commits(actor="act-ana")] == ["act-ana"]
    assert graph.list_commits(actor="somebody") == []


def test_c_wrt_008_mixing_inserts_and_deletes_is_refused_before_any_io(graph: og.Graph) -> None:
    before = graph.snapshot()
    with pytest.raises(QueryTypeError, match="mixes inserts/updates and deletes"):
        graph.mutate('query q { insert Note { text: "x" } delete Note where text = "x" }')
    assert graph.snapshot() == before


def test_c_wrt_018_a_duplicate_of_a_committed_unique_value_is_rejected(graph: og.Graph) -> None:
    graph.load(data='{"type":"Person","data":{"name":"a","email":"x@y"}}', mode="append")
    with pytest.raises(ConstraintViolation, match="held by"):
        graph.mutate('query q { insert Person { name: "b", email: "x@y" } }')
    with pytest.raises(ConstraintViolation, match="held by"):
        graph.load(data='{"type":"Person","data":{"name":"b","email":"x@y"}}', mode="merge")


def test_c_wrt_020_append_of_an_existing_id_is_a_key_conflict(graph: og.Graph) -> None:
    graph.mutate(ADD, {"n": "a"})
    before = graph.snapshot()
    with pytest.raises(KeyConflict) as refused:
        graph.load(data='{"type":"Person","data":{"name":"a"}}', mode="append")
    assert refused.value.details["entity_id"] == "a"
    assert graph.snapshot() == before


def test_c_wrt_022_repeated_merges_of_the_same_keys_succeed(graph: og.Graph) -> None:
    for step in range(3):
        data = f'{{"type":"Person","data":{{"name":"a","age":{step}}}}}'
        graph.load(data=data, mode="merge")
    assert age(graph, "a") == 2


def test_a_merge_that_changes_nothing_makes_no_commit(graph: og.Graph) -> None:
    data = '{"type":"Person","data":{"name":"a","age":1}}'
    graph.load(data=data, mode="merge")
    receipt = graph.load(data=data, mode="merge")
    assert receipt.commit is None
    assert receipt.to_dict()["unchanged"] == 1


def test_c_wrt_024_overwrite_with_no_records_empties_a_type_in_one_commit(graph: og.Graph) -> None:
    graph.mutate(NOTE, {"t": "x"})
    commits = len(graph.list_commits())
    graph.load(data="", mode="overwrite", replace_types=["node:Note"])
    assert ids(graph, "node", "Note") == []
    assert len(graph.list_commits()) == commits + 1


def test_c_sch_056_merge_replaces_the_whole_entity_if_asked_to(graph: og.Graph) -> None:
    graph.load(data='{"type":"Person","data":{"name":"a","age":7}}', mode="append")
    graph.load(data='{"type":"Person","data":{"name":"a"}}', mode="merge")
    assert age(graph, "a") == 7
    graph.load(data='{"type":"Person","data":{"name":"a"}}', mode="merge", absent="null")
    assert age(graph, "a") is None


# --- the branch moved -----------------------------------------------------------------------------


def test_c_wrt_026_an_insert_whose_branch_moved_is_prepared_again_and_lands(
    graph: og.Graph,
) -> None:
    other = og.open(graph.uri)
    with meanwhile(lambda: other.mutate(ADD, {"n": "other"})):  # type: ignore[attr-defined]
        graph.mutate(ADD, {"n": "mine"})
    assert persons(graph) == ["mine", "other"]


def test_c_wrt_027_its_validators_run_again_on_the_new_head(graph: og.Graph) -> None:
    graph.mutate(ADD, {"n": "a"})
    other = og.open(graph.uri)
    delete = 'query q { delete Person where name = "a" }'
    with (
        meanwhile(lambda: other.mutate(delete)),  # type: ignore[attr-defined]
        pytest.raises(ConstraintViolation, match="not found in Person"),
    ):
        graph.mutate(KNOWS, {"a": "a", "b": "a"})


def test_a_stale_handle_cannot_take_an_edge_key_that_was_taken_meanwhile(tmp_path: Path) -> None:
    schema = "node City { name: String @key } edge Road: City -> City { @key(src, dst) }"
    graph = og.init(tmp_path / "roads.omni", schema=schema)
    graph.mutate('query q { insert City { name: "a" } }')
    road = 'query q { insert Road { from: "a", to: "a" } }'
    other = og.open(graph.uri)
    with (
        meanwhile(lambda: other.mutate(road)),  # type: ignore[attr-defined]
        pytest.raises(ConstraintViolation, match="@key violation"),
    ):
        graph.mutate(road)
    assert len(ids(graph, "edge", "Road")) == 1


def test_c_wrt_017_a_stale_handle_cannot_exceed_a_cardinality(graph: og.Graph) -> None:
    graph.mutate(ADD, {"n": "a"})
    graph.mutate(KNOWS, {"a": "a", "b": "a"})
    other = og.open(graph.uri)
    with (
        meanwhile(lambda: other.mutate(KNOWS, {"a": "a", "b": "a"})),  # type: ignore[attr-defined]
        pytest.raises(ConstraintViolation, match="@card violation"),
    ):
        graph.mutate(KNOWS, {"a": "a", "b": "a"})
    assert len(ids(graph, "edge", "Knows")) == 2


def test_c_wrt_028_a_strict_update_whose_table_moved_names_all_three_values(
    graph: og.Graph,
) -> None:
    graph.mutate(ADD, {"n": "a"})
    other = og.open(graph.uri)
    with (
        meanwhile(lambda: other.mutate(ADD, {"n": "b"})),  # type: ignore[attr-defined]
        pytest.raises(ExpectedVersionMismatch) as refused,
    ):
        graph.mutate(AGE, {"n": "a", "a": 1})
    assert refused.value.details == {"table_key": "node:Person", "expected": 2, "actual": 3}
    assert age(graph, "a") is None


def test_c_wrt_029_a_disjoint_commit_makes_a_strict_update_a_read_set_conflict(
    graph: og.Graph,
) -> None:
    graph.mutate(ADD, {"n": "a"})
    other = og.open(graph.uri)
    with (
        meanwhile(lambda: other.mutate(NOTE, {"t": "x"})),  # type: ignore[attr-defined]
        pytest.raises(ReadSetChanged),
    ):
        graph.mutate(AGE, {"n": "a", "a": 1})
    assert age(graph, "a") is None


def test_c_wrt_030_only_maintenance_in_between_does_not_disturb_a_strict_update(
    graph: og.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph.mutate(ADD, {"n": "a"})
    for number in range(3):
        graph.mutate(ADD, {"n": f"more-{number}"})
    other = og.open(graph.uri)

    done: list[bool] = []

    def act(_: Failpoint) -> None:
        if not done:
            done.append(True)
            other.optimize()

    with armed({Failpoint.MUTATION_POST_STAGE_PRE_EFFECT_GATE: act}):
        graph.mutate(AGE, {"n": "a", "a": 5})
    assert age(graph, "a") == 5
    assert len(graph.list_commits()) == 7


def test_c_wrt_031_a_long_lived_handle_prepares_from_the_current_head(graph: og.Graph) -> None:
    other = og.open(graph.uri)
    graph.mutate(ADD, {"n": "a"})
    other.mutate(AGE, {"n": "a", "a": 3})
    graph.mutate(AGE, {"n": "a", "a": 4})
    assert age(other, "a") == 4


# --- conditions and repetition --------------------------------------------------------------------


def test_c_wrt_032_a_conditional_write_that_lost_has_no_effect_and_names_both(
    graph: og.Graph,
) -> None:
    seen = graph.snapshot().graph_commit_id
    graph.mutate(ADD, {"n": "a"})
    head = graph.snapshot().graph_commit_id
    with pytest.raises(PreconditionFailed) as refused:
        graph.mutate(ADD, {"n": "b"}, expected_head=seen)
    assert refused.value.details == {"expected": seen, "actual": head}
    assert graph.mutate(ADD, {"n": "c"}, expected_head=head).commit is not None
    assert persons(graph) == ["a", "c"]


def test_c_wrt_032_a_conditional_write_is_never_prepared_again(graph: og.Graph) -> None:
    head = graph.snapshot().graph_commit_id
    other = og.open(graph.uri)
    with (
        meanwhile(lambda: other.mutate(ADD, {"n": "other"})),  # type: ignore[attr-defined]
        pytest.raises(PreconditionFailed),
    ):
        graph.mutate(ADD, {"n": "mine"}, expected_head=head)
    assert persons(graph) == ["other"]


def test_c_wrt_033_a_conditional_write_without_a_match_is_checked_before_it_is_acknowledged(
    graph: og.Graph,
) -> None:
    head = graph.snapshot().graph_commit_id
    other = og.open(graph.uri)

    def act(_: Failpoint) -> None:
        other.mutate(ADD, {"n": "other"})

    with (
        armed({Failpoint.MUTATION_POST_NO_EFFECT_PRE_GATE: act}),
        pytest.raises(PreconditionFailed),
    ):
        graph.mutate(AGE, {"n": "nobody", "a": 1}, expected_head=head)


def test_repeating_an_operation_id_returns_the_first_receipt(graph: og.Graph) -> None:
    first = graph.mutate(NOTE, {"t": "x"}, operation_id="op-1", actor="me")
    again = og.open(graph.uri).mutate(NOTE, {"t": "x"}, operation_id="op-1", actor="me")
    assert again == first
    assert len(ids(graph, "node", "Note")) == 1


def test_repeating_a_load_with_its_operation_id_returns_the_first_counts(graph: og.Graph) -> None:
    data = '{"type":"Note","data":{"text":"x"}}'
    first = graph.load(data=data, mode="append", operation_id="load-1")
    again = graph.load(data=data, mode="append", operation_id="load-1")
    assert again.commit == first.commit
    assert again.nodes == first.nodes
    assert len(ids(graph, "node", "Note")) == 1
    with pytest.raises(Conflict, match="'load-1' was already used for a load of another input"):
        graph.load(data=data.replace("x", "y"), mode="append", operation_id="load-1")


def test_repeating_a_conditional_write_with_its_operation_id_is_no_lost_race(
    graph: og.Graph,
) -> None:
    head = graph.snapshot().graph_commit_id
    first = graph.mutate(ADD, {"n": "a"}, expected_head=head, operation_id="op-1")
    assert graph.mutate(ADD, {"n": "a"}, expected_head=head, operation_id="op-1") == first


def test_an_operation_sent_twice_at_once_is_carried_out_once(graph: og.Graph) -> None:
    other = og.open(graph.uri)
    with meanwhile(lambda: other.mutate(NOTE, {"t": "x"}, operation_id="op-1")):  # type: ignore[attr-defined]
        receipt = graph.mutate(NOTE, {"t": "x"}, operation_id="op-1")
    assert receipt.commit == graph.list_commits()[0]
    assert len(ids(graph, "node", "Note")) == 1


def test_an_operation_id_cannot_name_two_kinds_of_write(graph: og.Graph) -> None:
    graph.mutate(NOTE, {"t": "x"}, operation_id="op-1")
    with pytest.raises(OmnigraphError, match="already used"):
        graph.load(data="", mode="append", operation_id="op-1")


# --- many writers ---------------------------------------------------------------------------------


def run_all(jobs: list[object]) -> list[object]:
    results: list[object] = []

    def run(job: object) -> None:
        try:
            results.append(job())  # type: ignore[operator]
        except OmnigraphError as error:
            results.append(error)

    threads = [threading.Thread(target=run, args=(job,)) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def test_c_wrt_021_of_many_strict_inserts_of_one_id_one_wins(graph: og.Graph) -> None:
    data = '{"type":"Person","data":{"name":"one"}}'
    handles = [og.open(graph.uri) for _ in range(5)]
    results = run_all([lambda h=handle: h.load(data=data, mode="append") for handle in handles])
    conflicts = [result for result in results if isinstance(result, KeyConflict)]
    assert len(conflicts) == 4
    assert persons(graph) == ["one"]


def test_c_wrt_021_disjoint_inserts_all_land(graph: og.Graph) -> None:
    handles = [og.open(graph.uri) for _ in range(6)]
    results = run_all(
        [
            lambda h=handle, n=number: h.mutate(ADD, {"n": f"p{n}"})
            for number, handle in enumerate(handles)
        ]
    )
    assert not [result for result in results if isinstance(result, Exception)]
    assert persons(graph) == [f"p{n}" for n in range(6)]


# --- failures -------------------------------------------------------------------------------------


def test_c_wrt_035_a_failure_between_two_tables_names_the_operation(graph: og.Graph) -> None:
    query = 'query q { insert Person { name: "a" } insert Note { text: "x" } }'
    with armed("mutation.post_table_commit=error*1"), pytest.raises(RecoveryRequired) as broken:
        graph.mutate(query)
    pending = graph._kernel.sidecars.names()
    assert pending == [f"__recovery/{broken.value.details['operation_id']}.json"]
    assert [s.outcome for s in graph.recover()] == ["rolled_back"]
    graph.mutate(query)
    assert persons(graph) == ["a"]


def test_c_wrt_045_an_interruption_before_arming_leaves_nothing(graph: og.Graph) -> None:
    before = graph.snapshot()

    def interrupt(_: Failpoint) -> None:
        raise KeyboardInterrupt

    with (
        armed({Failpoint.MUTATION_POST_STAGE_PRE_EFFECT_GATE: interrupt}),
        pytest.raises(KeyboardInterrupt),
    ):
        graph.mutate(ADD, {"n": "a"})
    assert graph.snapshot() == before
    assert graph._kernel.sidecars.names() == []
    graph.mutate(ADD, {"n": "a"})


def test_c_wrt_046_repeated_loads_create_no_branches(graph: og.Graph) -> None:
    for number in range(3):
        graph.load(data=f'{{"type":"Note","data":{{"text":"{number}"}}}}', mode="append")
    assert graph.list_branches() == ["main"]
    main = graph._kernel.manifest.main.where
    assert graph._kernel.lance.refs(main) == {}


def test_a_read_query_is_not_a_mutation(graph: og.Graph) -> None:
    with pytest.raises(InputError, match="only reads"):
        graph.mutate("query q { match { $p: Person } return { $p } }")


def test_a_read_only_handle_refuses_to_write(graph: og.Graph) -> None:
    reader = og.open(graph.uri, mode="read_only")
    with pytest.raises(InputError, match="opened for writing"):
        reader.mutate(ADD, {"n": "a"})


@pytest.mark.parametrize("make", [lambda uri: og.init(uri, SCHEMA), og.open])
def test_no_graph_lives_in_memory(make: Callable[[str], object]) -> None:
    with pytest.raises(InputError, match="'memory://g' can hold objects, but no tables"):
        make("memory://g")


def test_opening_nothing_says_how_to_create_it(tmp_path: Path) -> None:
    with pytest.raises(NotFound) as missing:
        og.open(tmp_path / "absent")
    assert "omnigraph init" in (missing.value.hint or "")


def test_loading_into_a_missing_branch_needs_a_source_branch(graph: og.Graph) -> None:
    with pytest.raises(NotFound, match="no branch"):
        graph.load(data="", mode="append", branch="review")
    receipt = graph.load(
        data='{"type":"Note","data":{"text":"x"}}', mode="append", branch="review", from_="main"
    )
    assert receipt.branch_created
    assert len(ids(graph, "node", "Note", "review")) == 1
    assert ids(graph, "node", "Note") == []


def test_bad_input_leaves_no_new_branch_behind(graph: og.Graph) -> None:
    with pytest.raises(InputError):
        graph.load(data="nonsense", mode="append", branch="review", from_="main")
    assert graph.list_branches() == ["main"]


def test_an_edge_is_updated_and_deleted_by_its_ends_and_its_key_is_held_once(
    tmp_path: Path,
) -> None:
    schema = """
    node City { name: String @key }
    edge Flight: City -> City { number: I32  seats: I32?  scan: Blob?  @key(src, dst, number) }
    """
    graph = og.init(tmp_path / "flights.omni", schema=schema)
    insert = 'insert Flight { from: "bern", to: "oslo", number: 7, scan: "base64:AQI=" }'
    graph.mutate(
        f'query q() {{ insert City {{ name: "bern" }} insert City {{ name: "oslo" }} {insert} }}'
    )
    before = [json.loads(line) for line in b"".join(graph.export(types=["Flight"])).splitlines()]
    with pytest.raises(ConstraintViolation, match=r"@key violation .*'\(bern, oslo, 7\)'"):
        graph.mutate(f"query q() {{ {insert} }}")
    update = 'update Flight set { seats: 90 } where from = "bern" and to = "oslo" and number = 7'
    receipt = graph.mutate(f"query q() {{ {update} }}")
    assert (receipt.affected_nodes, receipt.affected_edges) == (0, 1)
    after = [json.loads(line) for line in b"".join(graph.export(types=["Flight"])).splitlines()]
    before[0]["data"]["seats"] = 90
    assert after == before, "id, ends and blob stay"
    with pytest.raises(QueryTypeError, match="cannot update @key property 'number'"):
        graph.mutate('query q() { update Flight set { number: 8 } where from = "bern" }')
    deleted = graph.mutate('query q() { delete Flight where from = "bern" and to = "oslo" }')
    assert (deleted.affected_nodes, deleted.affected_edges) == (0, 1)
    assert graph.mutate(f"query q() {{ {insert} }}").affected_edges == 1, "the key is free again"


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("U32", ["1", "4294967295"]),
        ("U64", ["1", "18446744073709551615"]),
        ("I64", ["-9223372036854775808", "7"]),
        ("F32", ["0.1", "2.5"]),
        ("Bool", ["true", "false"]),
        ("Date", ['"2020-01-01"', '"1969-12-31"']),
        ("DateTime", ['"2020-01-01T00:00:00.001Z"', '"1969-12-31T23:59:59.999Z"']),
        ("String", ['"it\'s"', '"a?b"']),
    ],
)
def test_c_sch_049_committed_unique_values_of_every_type_are_found(
    tmp_path: Path, kind: str, values: list[str]
) -> None:
    schema = f"node Thing {{ name: String @key  code: {kind}? @unique }}"
    graph = og.init(tmp_path / "things.omni", schema=schema)
    for number, value in enumerate(values):
        record = f'{{"type":"Thing","data":{{"name":"t{number}","code":{value}}}}}'
        graph.load(data=record, mode="append")
    for value in values:
        with pytest.raises(ConstraintViolation, match="@unique violation"):
            graph.load(
                data=f'{{"type":"Thing","data":{{"name":"new","code":{value}}}}}', mode="append"
            )


@pytest.mark.parametrize(
    "records",
    [
        '{"edge":"Knows","from":"x","to":"y"}',
        '{"type":"Person","data":{"name":"a","age":"old"}}',
        '{"type":"Person","data":{"name":"a","age":1.5}}',
        '{"type":"Person","data":{"name":"a","unknown":1}}',
        '{"type":"Nobody","data":{}}',
        '{"type":"Person","data":{}}',
        "not json",
    ],
)
@pytest.mark.parametrize("mode", ["append", "merge", "overwrite"])
def test_c_sch_054_a_rejected_load_leaves_versions_and_rows_unchanged(
    graph: og.Graph, records: str, mode: Any
) -> None:
    graph.mutate(ADD, {"n": "kept"})
    before, exported = graph.snapshot(), b"".join(graph.export())
    with pytest.raises(InputError):
        graph.load(data=records, mode=mode, grammar="strict")
    assert graph.snapshot() == before
    assert b"".join(graph.export()) == exported


def test_c_wrt_048_writers_of_every_kind_on_several_handles_never_deadlock(graph: og.Graph) -> None:
    """Gates, the line, leases of branches and of the graph: whoever waits, gets on."""
    handles = [graph, og.open(graph.uri), og.open(graph.uri)]
    graph.create_branch("shared")
    added: list[str] = []

    def run(number: int) -> None:
        handle = handles[number % len(handles)]
        for step in range(5):
            name = f"{number}-{step}"
            branch = ("main", "shared")[(number + step) % 2]
            handle.mutate(ADD, {"n": name}, branch=branch)
            added.append(f"{branch} {name}")
            match (number + step) % 4:
                case 0:
                    handle.create_branch(f"own-{name}", from_=branch)
                    handle.delete_branch(f"own-{name}")
                case 1:
                    line = f'{{"type": "Note", "data": {{"text": "{name}"}}}}'
                    handle.load(mode="append", data=line, branch=branch)
                case 2:
                    handle.recover()
                case _:
                    handle.list_branches()

    failures: list[BaseException] = []

    def watched(number: int) -> None:
        try:
            run(number)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=watched, args=(n,), daemon=True) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not any(thread.is_alive() for thread in threads)
    assert failures == []
    for branch in ("main", "shared"):
        own = {each.removeprefix(f"{branch} ") for each in added if each.startswith(f"{branch} ")}
        assert own == set(persons(graph, branch))
