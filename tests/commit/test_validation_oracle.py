"""The validator against one that builds the whole resulting graph and checks every constraint.

The oracle knows nothing of lookups: it holds two dictionaries of entities, before and after, and
goes through every row. Graphs are small and values few, so that constraints break often.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from hypothesis import event, given
from hypothesis import strategies as st

from omnigraph.commit.plan import ChangeKind, ChangeSet, TableChange
from omnigraph.commit.validation import InputRows, validate
from omnigraph.errors import ConstraintViolation
from omnigraph.model.types import Scalar, ValueType
from omnigraph.model.values import spell
from omnigraph.schema.catalog import EdgeType, NodeType
from tests.commit.conftest import MemoryView, catalog_of, change_of, rows_of, type_of
from tests.support.budgets import MANY

CATALOG = catalog_of(
    """
node Ant {
    code: String @key
    mark: I32? @unique
    size: F64?
    born: Date?
    mood: enum(calm, wild)?
    @unique(size, born)
    @range(size, -1.0..2)
    @check(code, "^[a-d]")
}
node Bug { name: String  age: U64? @unique  @range(age, 1..) }
edge Eats: Ant -> Bug @card(1..2) { day: Date?  @unique(src, day) }
edge Likes: Bug -> Ant { how: enum(much, some)?  @key(src, dst) }
edge Knows: Ant -> Ant @card(0..1) { since: I64  @unique(dst, since) }
"""
)
TABLES = [t.table_key for types in (CATALOG.nodes, CATALOG.edges) for t in types.values()]
Entities = dict[str, dict[str, Any]]
Graph = dict[str, Entities]

# --- the oracle -----------------------------------------------------------------------------------


@dataclass
class Oracle:
    before: Graph
    kinds: dict[str, ChangeKind]
    after: Graph
    touched: dict[str, set[str]]
    """Entities each table change is about."""

    def violations(self) -> list[tuple[str, str, str | None, str]]:
        found: list[tuple[str, str, str | None, str]] = []
        nodes = [CATALOG.nodes[name] for name in sorted(CATALOG.nodes)]
        edges = [CATALOG.edges[name] for name in sorted(CATALOG.edges)]
        everything: list[NodeType | EdgeType] = [*nodes, *edges]
        for type in everything:
            found += self.values(type)
        for type in everything:
            found += self.uniqueness(type)
        for edge in edges:
            found += self.endpoints(edge)
        for edge in edges:
            found += self.cardinality(edge)
        return found

    def values(self, type: NodeType | EdgeType) -> Iterator[tuple[str, str, str, str]]:
        key = type.table_key
        for entity_id in sorted(self.after[key].keys() & self.touched[key]):
            row = self.after[key][entity_id]
            for name in sorted(type.properties):
                for text in value_problems(type, name, row[name]):
                    yield ("value_constraint_violation", key, entity_id, text)

    def uniqueness(self, type: NodeType | EdgeType) -> Iterator[tuple[str, str, str, str]]:
        key = type.table_key
        found = []
        groups = [tuple(sorted(columns)) for columns in type.unique]
        if isinstance(type, EdgeType) and type.key_columns:
            groups.append(type.key_columns)
        for group in sorted(groups):
            holders: dict[tuple[Any, ...], list[str]] = {}
            for entity_id, row in sorted(self.after[key].items()):
                values = tuple(row[name] for name in group)
                if None not in values:
                    holders.setdefault(values, []).append(entity_id)
            for values, ids in holders.items():
                outside = [each for each in ids if each not in self.touched[key]]
                first = (outside or ids)[0]
                for entity_id in ids:
                    if entity_id in self.touched[key] and entity_id != first:
                        text = unique_text(type, group, values, first, entity_id)
                        found.append((entity_id, group, text))
        for entity_id, _, text in sorted(found):
            yield ("unique_violation", key, entity_id, text)

    def endpoints(self, type: EdgeType) -> Iterator[tuple[str, str, str, str]]:
        for entity_id, row in sorted(self.after[type.table_key].items()):
            for column, node_type in (("src", type.source), ("dst", type.target)):
                if row[column] not in self.after[f"node:{node_type}"]:
                    text = f"{column} '{row[column]}' not found in {node_type}"
                    yield ("orphan_edge", type.table_key, entity_id, text)

    def cardinality(self, type: EdgeType) -> Iterator[tuple[str, str, None, str]]:
        key, node_key = type.table_key, f"node:{type.source}"
        low, high = type.cardinality.minimum, type.cardinality.maximum

        def sources(graph: Graph) -> list[str]:
            return [row["src"] for row in graph[key].values()]

        is_replaced = self.kinds.get(key) == "replace"
        candidates = set(sources(self.after)) | set([] if is_replaced else sources(self.before))
        for source in sorted(candidates):
            was_there = source in self.before[node_key]
            if self.kinds.get(node_key) == "replace":
                was_there = True  # the image of a replaced type is all there is
            if was_there and source not in self.after[node_key]:
                continue
            count = sources(self.after).count(source)
            for broken, bound in ((count < low, f"min {low}"),
                                  (high is not None and count > high, f"max {high}")):  # fmt: skip
                if broken:
                    text = f"source '{source}' has {count} edges ({bound})"
                    text = f"@card violation on edge {type.name}: {text}"
                    yield ("cardinality_violation", key, None, text)


def value_problems(type: NodeType | EdgeType, name: str, value: Any) -> Iterator[str]:
    declared = type.properties[name].type
    where = f"{type.name}.{name}"
    if value is None:
        if not declared.nullable:
            yield f"non-nullable property '{name}' has null or invalid values"
        return
    if declared.enum_values is not None and value not in declared.enum_values:
        yield (
            f"invalid enum value '{value}' for {where} "
            f"(expected: {', '.join(declared.enum_values)})"
        )
    if isinstance(type, EdgeType):
        return
    for bounds in type.ranges:
        if bounds.property == name:
            shown = spell(value, declared)
            if bounds.minimum is not None and value < bounds.minimum:
                yield f"@range violation on {where}: value {shown} < min {bounds.minimum:g}"
            if bounds.maximum is not None and value > bounds.maximum:
                yield f"@range violation on {where}: value {shown} > max {bounds.maximum:g}"
    for check in type.checks:
        if check.property == name and not re.search(check.pattern, value):
            yield (
                f"@check violation on {where}: value '{value}' "
                f"does not match pattern '{check.pattern}'"
            )


def unique_text(
    type: NodeType | EdgeType, group: tuple[str, ...], values: tuple[Any, ...], *ids: str
) -> str:
    types = [
        type.properties[name].type if name in type.properties else ValueType(Scalar.STRING)
        for name in group
    ]
    shown = [spell(value, each) for value, each in zip(values, types, strict=True)]
    columns = group[0] if len(group) == 1 else f"({', '.join(group)})"
    text = shown[0] if len(group) == 1 else f"({', '.join(shown)})"
    is_key = isinstance(type, EdgeType) and group == type.key_columns
    return (
        f"@{'key' if is_key else 'unique'} violation on {type.name}.{columns}: "
        f"value '{text}' held by '{ids[0]}' and '{ids[1]}'"
    )


# --- random graphs and changes --------------------------------------------------------------------

ANTS = ["a", "b", "c", "d", "e"]
BUGS = ["x", "y", "z", "new-x"]
DAYS = st.sampled_from([None, dt.date(1970, 1, 2), dt.date(1970, 1, 3)])
VALUES: dict[str, dict[str, st.SearchStrategy[Any]]] = {
    "node:Ant": {
        "mark": st.sampled_from([None, None, 1, 2, 3]),
        "size": st.sampled_from([None, -0.0, 0.0, 1.5, 3.0]),
        "born": DAYS,
        "mood": st.sampled_from([None, "calm", "wild", "odd"]),
    },
    "node:Bug": {
        "name": st.sampled_from(["n", "n", "n", None]),
        "age": st.sampled_from([None, None, 0, 1, 2**64 - 1]),
    },
    "edge:Eats": {"src": st.sampled_from(ANTS), "dst": st.sampled_from(BUGS), "day": DAYS},
    "edge:Likes": {
        "src": st.sampled_from(BUGS),
        "dst": st.sampled_from(ANTS),
        "how": st.sampled_from([None, "much", "odd"]),
    },
    "edge:Knows": {
        "src": st.sampled_from(ANTS),
        "dst": st.sampled_from(ANTS),
        "since": st.sampled_from([1, 2, 3, None]),
    },
}
IDS = {
    "node:Ant": ANTS,
    "node:Bug": BUGS,
    "edge:Eats": ["e1", "e2", "e3", "e4", "e5"],
    "edge:Likes": ["l1", "l2", "l3"],
    "edge:Knows": ["k1", "k2", "k3"],
}


def entities(key: str, ids: list[str], min_size: int = 0) -> st.SearchStrategy[Entities]:
    """Some entities of a type, with ids of ``ids``."""

    def complete(rows: Entities) -> Entities:
        if key == "node:Ant":
            return {code: {"code": code, **row} for code, row in rows.items()}
        return rows

    if not ids:
        return st.just({})
    values = st.fixed_dictionaries(VALUES[key])
    return st.dictionaries(st.sampled_from(ids), values, min_size=min_size).map(complete)


def repaired(graph: Graph) -> Graph:
    """The largest part of a graph that is valid, or nearly so: what breaks a rule goes."""
    kinds: dict[str, ChangeKind] = dict.fromkeys(TABLES, "replace")
    while True:
        everything = {key: set(rows) for key, rows in graph.items()}
        broken = Oracle({key: {} for key in TABLES}, kinds, graph, everything).violations()
        if not broken:
            return graph
        for _, key, entity_id, text in broken:
            if entity_id is not None:
                graph[key].pop(entity_id, None)
            else:
                source = text.split("'")[1]
                for edge_id in [i for i, row in graph[key].items() if row["src"] == source]:
                    del graph[key][edge_id]


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """A valid graph; most of what is drawn is lost to repair, so as much as possible is drawn."""
    graph: Graph = {
        key: draw(entities(key, IDS[key], min_size=len(IDS[key]) - 1)) for key in TABLES
    }
    for key, rows in graph.items():
        type = type_of(CATALOG, key)
        for row in rows.values():
            for name, declared in type.properties.items():
                if list(value_problems(type, name, row[name])) and name != "code":
                    row[name] = None if declared.type.nullable else {"name": "n", "since": 1}[name]
    return repaired(graph)


@st.composite
def change_sets(draw: st.DrawFn, graph: Graph) -> dict[str, tuple[ChangeKind, Entities]]:
    changes: dict[str, tuple[ChangeKind, Entities]] = {}
    for key in TABLES:
        kind = draw(st.sampled_from([None, None, "append", "upsert", "delete", "replace"]))
        existing = sorted(graph[key])
        match kind:
            case "append":
                rows = draw(entities(key, [each for each in IDS[key] if each not in existing]))
            case "upsert" | "replace":
                rows = draw(entities(key, IDS[key]))
            case "delete":
                ids = draw(st.sets(st.sampled_from(existing))) if existing else set()
                rows = {entity_id: {} for entity_id in ids}
            case _:
                continue
        if rows or kind == "replace":
            changes[key] = (kind, rows)
    return changes


def applied(graph: Graph, changes: dict[str, tuple[ChangeKind, Entities]]) -> Graph:
    result = {key: dict(rows) for key, rows in graph.items()}
    for key, (kind, rows) in changes.items():
        if kind == "replace":
            result[key] = rows
        elif kind == "delete":
            result[key] = {i: row for i, row in graph[key].items() if i not in rows}
        else:
            result[key] |= rows
    return result


def table_change(key: str, kind: ChangeKind, rows: Entities) -> TableChange:
    return change_of(CATALOG, kind, key, *({"id": i, **row} for i, row in rows.items()))


def view_of(graph: Graph) -> MemoryView:
    return MemoryView(
        {
            key: rows_of(CATALOG, key, [{"id": i, **row} for i, row in rows.items()])
            for key, rows in graph.items()
        }
    )


@MANY
@given(st.data())
def test_c_sch_048_to_053_lookups_find_what_a_full_check_finds(data):
    graph = data.draw(graphs())
    changes = data.draw(change_sets(graph))
    oracle = Oracle(
        graph,
        {key: kind for key, (kind, _) in changes.items()},
        applied(graph, changes),
        {key: set(changes[key][1]) if key in changes else set() for key in TABLES},
    )
    expected = oracle.violations()
    for kind, *_ in expected:
        event(kind)
    change_set = ChangeSet(
        {key: table_change(key, kind, rows) for key, (kind, rows) in changes.items()}
    )
    view = view_of(graph)
    found = validate(change_set, CATALOG, view, collect=True)
    assert [(v.kind.value, v.table_key, v.entity_id, v.message) for v in found] == expected
    try:
        validate(change_set, CATALOG, view)
    except ConstraintViolation as error:
        assert error.message == found[0].sentence
    else:
        assert not expected


@given(st.lists(entities("node:Ant", ANTS), max_size=3))
def test_c_sch_049_batch_repeats_equal_a_pairwise_search(parts):
    records = [{"id": i, **row} for part in parts for i, row in part.items()]
    folded = {record["id"]: record for record in records}
    repeated = set()
    for group in (("code",), ("mark",), ("born", "size")):
        for at, record in enumerate(records):
            values = tuple(record[name] for name in group)
            earlier = [tuple(other[name] for name in group) for other in records[:at]]
            if None not in values and values in earlier:
                repeated.add((record["id"], group[0] if len(group) == 1 else "(born, size)"))
    change = change_of(CATALOG, "upsert", "node:Ant", *folded.values())
    given_rows = rows_of(CATALOG, "node:Ant", records)
    view = view_of({key: {} for key in TABLES})
    found = validate(
        ChangeSet({"node:Ant": change}),
        CATALOG,
        view,
        given={"node:Ant": InputRows(given_rows)},
        collect=True,
    )
    prefix = "@unique violation on Ant."
    assert repeated == {
        (each.entity_id, each.message.split(":")[0].removeprefix(prefix))
        for each in found
        if each.kind == "unique_violation"
    }
