"""Random mutations against an interpreter that changes a dictionary, one statement at a time."""

from __future__ import annotations

import base64
import operator
from dataclasses import dataclass, field
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.commit.conftest import MemoryView, catalog_of, counted_ids, mutate, rows_of
from tests.support.budgets import MANY

CATALOG = catalog_of(
    """
node Ant { key: String @key  n: I32?  f: F32?  tag: String? @default("d")  blob: Blob? }
node Bug { t: String  n: U64? @unique  blob: Blob? }
node Cell { x: I64  y: Bool  n: I32?  @key(x, y) }
edge Eats: Ant -> Bug { n: I32? }
edge Likes: Ant -> Ant { n: I32? }
"""
)
TABLES = ["node:Ant", "node:Bug", "node:Cell", "edge:Eats", "edge:Likes"]
State = dict[str, dict[str, dict[str, Any]]]

# --- the interpreter ------------------------------------------------------------------------------

COMPARISONS: dict[str, Any] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


@dataclass
class Interpreter:
    state: State
    nodes: int = 0
    edges: int = 0
    mint: Any = field(default_factory=counted_ids)

    def run(self, statement: tuple[Any, ...]) -> None:
        match statement:
            case ("insert", key, values):
                self.insert(key, dict(values))
            case ("update", key, values, predicate):
                matched = [row for row in self.state[key].values() if is_true(predicate, row)]
                for row in matched:
                    row.update(values)
                if key.startswith("node"):
                    self.nodes += len(matched)
                else:
                    self.edges += len(matched)
            case ("delete", key, predicate):
                for entity_id, row in list(self.state[key].items()):
                    if is_true(predicate, row):
                        self.delete(key, entity_id)

    def insert(self, key: str, values: dict[str, Any]) -> None:
        match key:
            case "node:Ant":
                row = {"n": None, "f": None, "tag": "d", "blob": None} | values
                self.state[key][values["key"]] = row
            case "node:Cell":
                entity_id = f'["{values["x"]}","{str(values["y"]).lower()}"]'
                self.state[key][entity_id] = {"n": None} | values
            case _:
                row = {"n": None} | ({"blob": None} if key == "node:Bug" else {}) | values
                self.state[key][self.mint()] = row
        if key.startswith("node"):
            self.nodes += 1
        else:
            self.edges += 1

    def delete(self, key: str, entity_id: str) -> None:
        del self.state[key][entity_id]
        if key.startswith("edge"):
            self.edges += 1
            return
        self.nodes += 1
        ends = {"node:Ant": [("edge:Eats", "src"), ("edge:Likes", "src"), ("edge:Likes", "dst")],
                "node:Bug": [("edge:Eats", "dst")]}  # fmt: skip
        for edge_key, column in ends.get(key, []):
            for edge_id, row in list(self.state[edge_key].items()):
                if row[column] == entity_id:
                    self.delete(edge_key, edge_id)


def is_true(predicate: tuple[Any, ...], row: dict[str, Any]) -> bool:
    match predicate:
        case ("and", parts):
            return all(is_true(part, row) for part in parts)
        case ("or", parts):
            return any(is_true(part, row) for part in parts)
        case ("null", name, negated):
            return (row[name] is None) is not negated
        case ("in", name, values):
            return row[name] is not None and row[name] in values
        case (symbol, name, value):
            return row[name] is not None and COMPARISONS[symbol](row[name], value)
    raise AssertionError(predicate)


# --- random statements ----------------------------------------------------------------------------

KEYS = ["a", "b", "c"]
SMALL = st.integers(-1, 2)
FLOATS = st.sampled_from([-0.5, 0.0, 0.5, 1.0, 2.0])
TEXTS = st.sampled_from(["d", "x", "%"])
BLOBS = st.sampled_from([b"", b"one", b"two"])
BUG_IDS = ["p", "q", "new-1"]
PROPERTIES: dict[str, dict[str, st.SearchStrategy[Any]]] = {
    "node:Ant": {"key": st.sampled_from(KEYS), "n": SMALL, "f": FLOATS, "tag": TEXTS},
    "node:Bug": {"t": TEXTS, "n": st.integers(0, 3)},
    "node:Cell": {"x": SMALL, "y": st.booleans(), "n": SMALL},
    "edge:Eats": {"src": st.sampled_from(KEYS), "dst": st.sampled_from(BUG_IDS), "n": SMALL},
    "edge:Likes": {"src": st.sampled_from(KEYS), "dst": st.sampled_from(KEYS), "n": SMALL},
}
REQUIRED = {
    "node:Ant": {"key"},
    "node:Bug": {"t"},
    "node:Cell": {"x", "y"},
    "edge:Eats": {"src", "dst"},
    "edge:Likes": {"src", "dst"},
}
FIXED = {
    "node:Ant": {"key"},
    "node:Cell": {"x", "y"},
    "edge:Eats": {"src", "dst"},
    "edge:Likes": {"src", "dst"},
}
"""What no update assigns to."""


def assignments(key: str, *, for_update: bool) -> st.SearchStrategy[dict[str, Any]]:
    columns = dict(PROPERTIES[key])
    if key in ("node:Ant", "node:Bug"):
        columns["blob"] = BLOBS
    fixed = set() if for_update else REQUIRED[key]
    free = {
        name: st.none() | values if name not in REQUIRED[key] else values
        for name, values in columns.items()
        if name not in fixed and not (for_update and name in FIXED.get(key, set()))
    }
    required = {name: columns[name] for name in fixed}
    given = st.fixed_dictionaries(required, optional=free)
    return given.filter(bool)


def predicates(key: str, depth: int = 1) -> st.SearchStrategy[tuple[Any, ...]]:
    columns = PROPERTIES[key]

    def comparison(name: str) -> st.SearchStrategy[tuple[Any, ...]]:
        values = columns[name]
        numbers = name in ("n", "x", "f")
        # Any number compares with any other.
        operand = values | FLOATS if numbers else values
        return st.one_of(
            st.tuples(st.sampled_from(sorted(COMPARISONS)), st.just(name), operand),
            st.tuples(st.just("="), st.just(name), operand),
            st.tuples(st.just("in"), st.just(name), st.lists(values, min_size=1, max_size=3)),
        )

    nullable = [name for name in columns if name not in ("src", "dst")]
    leaf = st.one_of(
        st.sampled_from(sorted(columns)).flatmap(comparison),
        st.tuples(st.just("null"), st.sampled_from(nullable), st.booleans()),
    )
    if not depth:
        return leaf
    several = st.lists(predicates(key, depth - 1), min_size=2, max_size=3)
    return leaf | st.tuples(st.sampled_from(["and", "or"]), several)


def writes() -> st.SearchStrategy[tuple[Any, ...]]:
    def of(key: str) -> st.SearchStrategy[tuple[Any, ...]]:
        insert = st.tuples(st.just("insert"), st.just(key), assignments(key, for_update=False))
        values = assignments(key, for_update=True)
        return insert | st.tuples(st.just("update"), st.just(key), values, predicates(key))

    return st.sampled_from(TABLES).flatmap(of)


def deletes() -> st.SearchStrategy[tuple[Any, ...]]:
    return st.sampled_from(TABLES).flatmap(
        lambda key: st.tuples(st.just("delete"), st.just(key), predicates(key))
    )


@st.composite
def states(draw: st.DrawFn) -> State:
    """A graph in which edges point at nodes that exist."""
    state: State = {key: {} for key in TABLES}
    for code in draw(st.sets(st.sampled_from(KEYS))):
        row = draw(assignments("node:Ant", for_update=True))
        state["node:Ant"][code] = dict.fromkeys(["n", "f", "tag", "blob"]) | row | {"key": code}
    for bug_id in draw(st.sets(st.sampled_from(BUG_IDS[:2]))):
        row = draw(assignments("node:Bug", for_update=False))
        state["node:Bug"][bug_id] = {"n": None, "blob": None} | row
    for x, y in draw(st.sets(st.tuples(SMALL, st.booleans()))):
        state["node:Cell"][f'["{x}","{str(y).lower()}"]'] = {"x": x, "y": y, "n": draw(SMALL)}
    for key, target in (("edge:Eats", "node:Bug"), ("edge:Likes", "node:Ant")):
        for i in range(draw(st.integers(0, 4)) if state["node:Ant"] and state[target] else 0):
            state[key][f"{key}-{i}"] = {
                "src": draw(st.sampled_from(sorted(state["node:Ant"]))),
                "dst": draw(st.sampled_from(sorted(state[target]))),
                "n": draw(st.none() | SMALL),
            }
    return state


# --- their text -----------------------------------------------------------------------------------


def text_of(statement: tuple[Any, ...]) -> str:
    kind, key, *rest = statement
    name = key.partition(":")[2]
    match kind:
        case "insert":
            return f"insert {name} {{ {pairs(rest[0])} }}"
        case "update":
            return f"update {name} set {{ {pairs(rest[0])} }} where {where(rest[1])}"
    return f"delete {name} where {where(rest[0])}"


def pairs(values: dict[str, Any]) -> str:
    return ", ".join(f"{column(name)}: {literal(value)}" for name, value in values.items())


def column(name: str) -> str:
    return {"src": "from", "dst": "to"}.get(name, name)


def literal(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case bytes():
            return f'"base64:{base64.b64encode(value).decode()}"'
        case str():
            return f'"{value}"'
        case list():
            return f"[{', '.join(map(literal, value))}]"
    return str(value)


def where(predicate: tuple[Any, ...]) -> str:
    match predicate:
        case ("and" | "or" as joint, parts):
            return "( " + f" {joint} ".join(map(where, parts)) + " )"
        case ("null", name, negated):
            return f"{column(name)} is {'not ' if negated else ''}null"
    symbol, name, value = predicate
    return f"{column(name)} {symbol} {literal(value)}"


# --- the comparison -------------------------------------------------------------------------------


def view_of(state: State) -> MemoryView:
    return MemoryView(
        {
            key: rows_of(CATALOG, key, [{"id": i, **row} for i, row in rows.items()])
            for key, rows in state.items()
        }
    )


def state_of(view: MemoryView) -> State:
    state: State = {}
    for key in TABLES:
        state[key] = view.entities(key)
        for row in state[key].values():
            if row.get("blob") is not None:
                row["blob"] = row["blob"]["data"]
    return state


def copied(state: State) -> State:
    return {key: {i: dict(row) for i, row in rows.items()} for key, rows in state.items()}


@MANY
@given(
    states(),
    st.lists(writes(), min_size=1, max_size=6) | st.lists(deletes(), min_size=1, max_size=4),
)
def test_staging_leaves_what_running_each_statement_would(state, statements):  # fmt: skip
    expected = Interpreter(copied(state))
    for statement in statements:
        expected.run(statement)
    view = view_of(state)
    outcome = mutate(CATALOG, view, " ".join(map(text_of, statements)))
    assert (outcome.affected_nodes, outcome.affected_edges) == (expected.nodes, expected.edges)
    assert state_of(view.after(outcome.change_set)) == expected.state
    for change in outcome.change_set.tables.values():
        ids = change.ids.to_pylist()
        assert ids and len(set(ids)) == len(ids)
        assert change.kind != "append" or not set(ids) & state[change.table_key].keys()
