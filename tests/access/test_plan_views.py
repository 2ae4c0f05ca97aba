"""Plans of merges, reverts and cherry-picks: as on copies of the graph without what is hidden."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import omnigraph as og
from omnigraph.errors import MergeConflicts, OmnigraphError
from omnigraph.model.merging import ROW_CONFLICTS, MergePlan
from omnigraph.policy import load_policy
from omnigraph.schema.catalog import EdgeType
from tests.access.test_history_views import WITH_BLOBS, Content, Entity, History, actor_of, load
from tests.access.views import CATALOG, RandomView, random_views
from tests.branching.reference_merge import exact, merged_entity
from tests.engines.matches import records
from tests.support.budgets import FEW, budget

EXAMPLES = settings(
    FEW, suppress_health_check=[*FEW.suppress_health_check, HealthCheck.function_scoped_fixture]
)
Granularity = Literal["entity", "property"]


def diverged(path: Path, seed: int) -> History:
    """A graph whose branches changed the same few entities in many ways."""
    choices = random.Random(seed)
    graph = og.init(path / f"{seed}.omni", schema=WITH_BLOBS)
    load(graph, records(choices))
    graph.create_branch("side")
    people = ("a", "b", "c", "d", "e")
    for number in range(10):
        on = "side" if number % 2 else "main"
        name, other = choices.choice(people), choices.choice(people)
        year, note = choices.randint(-1, 2), choices.randint(0, 2)
        match choices.randrange(6):
            case 0:
                write(graph, on, f'delete Person where name = "{name}"')
            case 1:
                write(graph, on, f'delete City where name = "{name}"')
            case 2:
                named = {"name": name, "age": year, "note": note}
                data = json.dumps({"type": "Person", "data": named})
                graph.load(data=data, mode="merge", branch=on)
            case 3:
                write(graph, on, f'update Person set {{ age: {year} }} where name = "{name}"')
                write(graph, on, f'update City set {{ note: {note} }} where name = "{name}"')
            case 4:
                write(graph, on, f'update Person set {{ note: {note} }} where name = "{name}"')
            case _:
                knows = {"id": f"Knows-{name}", "since": year}
                try:
                    load(graph, [{"edge": "Knows", "from": name, "to": other, "data": knows}], on)
                except OmnigraphError:
                    continue  # a node is gone, or the edge is there
    return History(graph)


def write(graph: og.Graph, branch: str, statement: str) -> None:
    graph.mutate(f"query q() {{ {statement} }}", branch=branch)


@pytest.fixture(scope="module")
def histories(tmp_path_factory: pytest.TempPathFactory) -> list[History]:
    path = tmp_path_factory.mktemp("diverged")
    return [diverged(path, seed) for seed in range(budget(3, 10))]


def expected(
    base: Content, source: Content, target: Content, granularity: Granularity
) -> tuple[dict[Entity, str], set[tuple[str, Entity]]]:
    """What a merge changes of the target, and what is in its way, found entity by entity."""
    changes: dict[Entity, str] = {}
    conflicts: set[tuple[str, Entity]] = set()
    results = [dict(target), dict(target)]
    for entity in {*base, *source, *target}:
        sides = base.get(entity), source.get(entity), target.get(entity)
        merged, kind = merged_entity(*sides, "fail", granularity)
        if kind is not None:
            conflicts.add((kind, entity))
            _set(results[1], entity, sides[1])
            continue
        if exact(merged) != exact(sides[2]):
            changes[entity] = "insert" if sides[2] is None else "update" if merged else "delete"
        for result in results:
            _set(result, entity, merged)
    return changes, conflicts | {
        ("orphan_edge", entity) for result in results for entity in orphans(result)
    }


def _set(content: Content, entity: Entity, value: dict[str, Any] | None) -> None:
    if value is None:
        content.pop(entity, None)
    else:
        content[entity] = value


def orphans(content: Content) -> Iterator[Entity]:
    for entity, row in content.items():
        kind, _, name = entity[0].partition(":")
        if kind == "edge" and not all(
            _node(CATALOG.edges[name], end, row[end]) in content for end in ("src", "dst")
        ):
            yield entity


def _node(type: EdgeType, end: str, stored: str) -> Entity:
    for name, prefix in type.end_types.get(end, {}).items():
        if stored.startswith(prefix):
            return f"node:{name}", stored.removeprefix(prefix)
    return f"node:{type.source if end == 'src' else type.target}", stored


def pages(fetch: Callable[..., MergePlan]) -> tuple[MergePlan, list[Any]]:
    """A plan, and the changes of all of its pages."""
    first = page = fetch(limit=2)
    listed = list(page.changes)
    while page.next_page_token is not None:
        page = fetch(limit=2, page_token=page.next_page_token)
        assert (page.types, page.conflicts) == (first.types, first.conflicts)
        listed += page.changes
    return first, listed


@pytest.mark.slow
@given(st.data(), random_views())
@EXAMPLES
def test_c_acc_005_plans_are_those_without_what_is_hidden(
    histories: list[History], data: st.DataObject, view: RandomView
):
    history = data.draw(st.sampled_from(histories))
    graph, everything = actor_of(history, view), RandomView.of_everything()
    granularity: Granularity = "entity"
    line = {name: history.commits[name] for name in ("main", "side")}
    match data.draw(st.sampled_from(["merge", "revert", "cherry-pick"])):
        case "merge":
            granularity = data.draw(st.sampled_from(["entity", "property"]))
            source, target = data.draw(st.permutations(["main", "side"]))

            def fetch(**page: Any) -> MergePlan:
                return graph.plan_merge(source, target, granularity=granularity, **page)

            base = fetch(limit=1).base_commit_id
            ends = [(source, base), (source, line[source][-1]), (target, line[target][-1])]
        case verb:
            on, target = data.draw(st.sampled_from([("main", "main"), ("side", "main")]))
            target = on if verb == "revert" else target
            at = data.draw(st.integers(2, len(line[on]) - 1))
            plan = graph.plan_revert if verb == "revert" else graph.plan_cherry_pick
            where: Any = {"branch": target} if verb == "revert" else {"into": target}

            def fetch(**page: Any) -> MergePlan:
                return plan(line[on][at], **where, **page)

            pair = [(on, line[on][at - 1]), (on, line[on][at])]
            ends = [*(pair if verb == "cherry-pick" else pair[::-1]), (target, line[target][-1])]
    contents = [history.content(*end, view) for end in ends]
    found, listed = pages(fetch)
    changes, conflicts = expected(contents[0], contents[1], contents[2], granularity)

    assert {(f"{each.kind}:{each.type_name}", each.id): each.op for each in listed} == changes
    assert len(listed) == len(changes)
    assert {(each.kind, (each.table_key, each.entity_id)) for each in found.conflicts} == conflicts
    assert {
        f"{each.kind}:{each.type_name}": (each.inserted, each.updated, each.deleted)
        for each in found.types
    } == {
        key: tuple(
            sum(own == key and op == each for (own, _), op in changes.items())
            for each in ("insert", "update", "delete")
        )
        for key in {entity[0] for entity in changes} | {entity[0] for _, entity in conflicts}
    }
    for each in listed:
        assert set(each.properties) <= {"from", "to", *_properties(view, each.type_name)}
    for conflict in found.conflicts:
        for side in (getattr(conflict, name, None) for name in ("base", "source", "target")):
            assert side is None or side.properties.keys() <= _properties(view, conflict.type_name)

    wholes = [history.content(*end, everything) for end in ends]
    _, real = expected(wholes[0], wholes[1], wholes[2], granularity)
    assert found.is_blocked_by_hidden == bool(_matters(real) - _matters(conflicts))


def _properties(view: RandomView, type_name: str) -> set[str]:
    shown = view.types[type_name].properties
    type = CATALOG.nodes.get(type_name) or CATALOG.edges[type_name]
    return {*type.properties, "photo"} if shown is None else set(shown)


def _matters(conflicts: set[tuple[str, Entity]]) -> set[tuple[str, Entity]]:
    """Conflicts by what they are about: two that disagree about one entity are one matter."""
    return {("" if kind in ROW_CONFLICTS else kind, entity) for kind, entity in conflicts}


BUNDLE = """
version: 2
groups: {readers: [act-ana]}
rules:
  - id: reads
    allow: {actors: {group: readers}, actions: [read], branch_scope: any}
    types:
      Person: {properties: [name, city], where: '$row.city = "Oslo"'}
      Knows: all
"""
PEOPLE = """
node Person { name: String @key  city: String  mail: String? @unique  pay: I64? }
node Secret { name: String @key }
edge Knows: Person -> Person @card(0..1)
"""


def person(name: str, city: str, **more: Any) -> dict[str, Any]:
    return {"type": "Person", "data": {"name": name, "city": city, **more}}


def knows(one: str, other: str) -> dict[str, Any]:
    return {"edge": "Knows", "from": one, "to": other, "data": {}}


@pytest.mark.parametrize(
    ("on_side", "on_main", "rows"),
    [
        # a unique value that a hidden row has, a hidden property, an edge to a hidden row
        (person("cy", "Oslo", mail="m"), person("boris", "Rome", mail="m"), 1),
        (person("ada", "Oslo", pay=2), person("ada", "Oslo", pay=3), 0),
        (person("boris", "Rome", pay=2), person("boris", "Rome", pay=3), 0),
        (knows("ada", "boris"), knows("ada", "evelyn"), 0),
        ({"type": "Secret", "data": {"name": "s"}}, {"type": "Secret", "data": {"name": "t"}}, 0),
    ],
)
def test_c_acc_005_a_hidden_conflict_is_told_as_one_line(
    tmp_path: Path, on_side: dict[str, Any], on_main: dict[str, Any], rows: int
):
    whole = og.init(tmp_path / "g.omni", schema=PEOPLE)
    found = [
        person(name, city)
        for name, city in (("ada", "Oslo"), ("boris", "Rome"), ("evelyn", "Rome"))
    ]
    load(whole, found)
    whole.create_branch("side")
    for record, branch in ((on_side, "side"), (on_main, "main")):
        if "edge" in record:
            load(whole, [record], branch)
        else:
            whole.load(data=json.dumps(record), mode="merge", branch=branch)
    ana = og.open(whole.uri, policy=load_policy(BUNDLE)).acting_as("act-ana")
    plan, real = ana.plan_merge("side"), whole.plan_merge("side")
    assert plan.conflicts == () and sum(each.inserted for each in plan.types) == rows
    assert plan.is_blocked_by_hidden == plan.is_blocked == bool(real.conflicts)
    for text in (repr(plan), plan._repr_html_(), json.dumps(plan.to_dict())):
        assert not any(
            word in text for word in ("boris", "evelyn", "mail", "pay", "Secret", "Rome")
        )
        assert ("something that you do not see" in text) == (plan.is_blocked and "{" not in text)
    if plan.is_blocked:
        with pytest.raises(MergeConflicts, match="something that you do not see") as refused:
            plan.require_no_conflicts()
        assert refused.value.details == {"merge_conflicts": []}


def test_c_acc_005_rules_of_a_plan_know_visible_names_only(tmp_path: Path):
    whole = og.init(tmp_path / "g.omni", schema=PEOPLE)
    whole.create_branch("side")
    ana = og.open(whole.uri, policy=load_policy(BUNDLE)).acting_as("act-ana")

    def told(rule: str) -> str:
        with pytest.raises(OmnigraphError) as refused:
            ana.plan_merge("side", on_conflict_of={rule: "source"}, granularity="property")
        return refused.value.render().replace(rule.rpartition(".")[2], "it")

    assert told("Secret") == told("Zzz") and told("Secre") == told("Zz")
    assert told("Person.mail") == told("Person.zzzz")
