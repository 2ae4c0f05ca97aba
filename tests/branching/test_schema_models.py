"""Merges across random changes of schema, against a merge of plain dictionaries.

Main and a branch are written to while main gets one schema after another. What the branch wrote is
then merged as it is, and, from a twin with the same writes, after a rebase: both lead to what the
model says.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

import omnigraph as og
from tests.commit.test_schema_apply import nodes
from tests.support.budgets import FEW

Row = dict[int, int | None]
"""Values by the number of their property, which no change of schema changes."""
Rows = dict[str, Row]


@dataclass(frozen=True)
class Prop:
    number: int
    name: str
    type: str = "I32"
    default: int | None = None
    renamed_from: str | None = None

    def __str__(self) -> str:
        default = "" if self.default is None else f" @default({self.default})"
        renamed = "" if self.renamed_from is None else f' @rename_from("{self.renamed_from}")'
        return f"{self.name}: {self.type}?{default}{renamed}"


@dataclass(frozen=True)
class Schema:
    type: str
    props: tuple[Prop, ...]
    others: int = 0
    renamed_from: str | None = None

    def __str__(self) -> str:
        renamed = "" if self.renamed_from is None else f' @rename_from("{self.renamed_from}")'
        props = "  ".join(map(str, self.props))
        others = "".join(f"node Other{at} {{ name: String @key }}\n" for at in range(self.others))
        return f"node {self.type}{renamed} {{ name: String @key  {props} }}\n{others}"

    def settled(self) -> Schema:
        """The same without the hints that led to it."""
        props = tuple(replace(prop, renamed_from=None) for prop in self.props)
        return replace(self, props=props, renamed_from=None)

    def with_prop(self, at: int, **changes: object) -> Schema:
        props = list(self.props)
        props[at] = replace(props[at], **changes)  # type: ignore[arg-type]
        return replace(self, props=tuple(props))

    def changed(self, kind: str, at: int) -> Schema:
        """The next schema."""
        old = self.settled()
        number, at = len(self.props), at % len(self.props)
        match kind:
            case "add":
                return replace(old, props=(*old.props, Prop(number, f"p{number}")))
            case "add with default":
                return replace(old, props=(*old.props, Prop(number, f"p{number}", default=number)))
            case "rename":
                name = old.props[at].name
                return old.with_prop(at, name=f"{name}x", renamed_from=name)
            case "widen":
                return old.with_prop(at, type="I64")
            case "other default":
                return old.with_prop(at, default=90 + at)
            case "no default":
                return old.with_prop(at, default=None)
            case "rename type":
                return replace(old, type=f"{old.type}X", renamed_from=old.type)
        return replace(old, others=old.others + 1)


CHANGES = (
    *("add", "add with default", "rename", "widen", "other default", "no default"),
    *("rename type", "add type"),
)
BEGIN = Schema("Memo", (Prop(0, "p0"), Prop(1, "p1", default=7)))


@dataclass(frozen=True)
class Write:
    on_main: bool
    action: str
    key: str
    at: int
    value: int | None

    def apply(self, rows: Rows, schema: Schema) -> None:
        """On the model."""
        prop = schema.props[self.at % len(schema.props)]
        if self.action == "insert":
            defaults = {each.number: each.default for each in schema.props}
            rows[self.key] = defaults | {prop.number: self.value}
        elif self.key in rows and self.action == "update":
            rows[self.key] = rows[self.key] | {prop.number: self.value}
        elif self.action == "delete":
            rows.pop(self.key, None)

    def run(self, graph: og.Graph, branch: str, schema: Schema) -> None:
        """On a graph."""
        name = schema.props[self.at % len(schema.props)].name
        value = "null" if self.value is None else self.value
        where = f'where name = "{self.key}"'
        text = {
            "insert": f'insert {schema.type} {{ name: "{self.key}", {name}: {value} }}',
            "update": f"update {schema.type} set {{ {name}: {value} }} {where}",
            "delete": f"delete {schema.type} {where}",
        }[self.action]
        graph.mutate(f"query q {{ {text} }}", branch=branch)


@dataclass
class World:
    """The model of a graph with main and one branch."""

    base: Rows
    main: Rows
    work: Rows
    schema: Schema = BEGIN
    arrived: Row = field(default_factory=dict)
    """What entities that were there got for each property that was added."""

    def change(self, kind: str, at: int) -> None:
        self.schema = self.schema.changed(kind, at)
        for prop in self.schema.props[len(BEGIN.props) + len(self.arrived) :]:
            self.arrived[prop.number] = prop.default
            self.main = {key: row | {prop.number: prop.default} for key, row in self.main.items()}

    def forward(self, rows: Rows) -> Rows:
        """Rows of the first schema in the last one."""
        return {key: self.arrived | row for key, row in rows.items()}

    def merged(self) -> Rows:
        """What a merge of the branch into main has, where the branch wins."""
        base, work, found = self.forward(self.base), self.forward(self.work), dict(self.main)
        for key in base.keys() | work.keys():
            if base.get(key) == work.get(key):
                continue
            found.pop(key, None)
            if key in work:
                found[key] = work[key]
        return found


keys = st.sampled_from("abcd")
values = st.none() | st.integers(0, 3)
writes = st.builds(
    Write,
    st.booleans(),
    st.sampled_from(("insert", "update", "delete")),
    keys,
    st.integers(0, 5),
    values,
)
changes = st.tuples(st.sampled_from(CHANGES), st.integers(0, 5))


@contextmanager
def seeded() -> Iterator[og.Graph]:
    with tempfile.TemporaryDirectory() as folder:
        graph = og.init(Path(folder) / "graph.omni", str(BEGIN))
        data = "\n".join(
            f'{{"type": "Memo", "data": {{"name": "{key}", "p0": 1, "p1": 2}}}}' for key in "abc"
        )
        graph.load(data=data, mode="append")
        yield graph


def shown(graph: og.Graph, branch: str, schema: Schema) -> Rows:
    return {
        row["name"]: {prop.number: row[prop.name] for prop in schema.props}
        for row in nodes(graph, schema.type, branch=branch)
    }


@FEW
@given(st.lists(writes, max_size=3), st.lists(st.lists(writes, max_size=3) | changes, max_size=5))
def test_a_merge_across_schemas_is_the_merge_of_the_model_with_and_without_a_rebase(
    first: list[Write], later: list[list[Write] | tuple[str, int]]
) -> None:
    begin: Rows = {key: {0: 1, 1: 2} for key in "abc"}
    world = World(dict(begin), dict(begin), dict(begin))
    with seeded() as graph:
        graph.create_branch("work")
        graph.create_branch("twin")
        for part in (first, *later):
            if isinstance(part, tuple):
                world.change(*part)
                graph.apply_schema(str(world.schema))
                continue
            for write in part:
                if write.on_main:
                    write.apply(world.main, world.schema)
                    write.run(graph, "main", world.schema)
                else:
                    write.apply(world.work, BEGIN)
                    for branch in ("work", "twin"):
                        write.run(graph, branch, BEGIN)
        assert shown(graph, "main", world.schema) == world.main
        assert shown(graph, "work", BEGIN) == world.work
        graph.create_branch("target")
        graph.rebase_schema("twin")
        assert shown(graph, "twin", world.schema) == world.forward(world.work)
        graph.merge_branch("work", into="target", on_conflict="source")
        graph.merge_branch("twin", on_conflict="source")
        assert shown(graph, "target", world.schema) == world.merged()
        assert shown(graph, "main", world.schema) == world.merged()
        assert graph.diff("main", "target", direct=True).types == ()
