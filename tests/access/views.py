"""Random bundles over the graphs of `tests.engines.matches`, and what they leave of a graph.

What is visible is found here row by row, by rules written in Python beside those of the bundle, so
that it is no answer of the code under test.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from hypothesis import strategies as st

from omnigraph.policy import Identity, Policy, load_policy
from omnigraph.schema.catalog import Catalog
from omnigraph.schema.compile import compile_schema
from tests.engines.matches import MEMBERS, SCHEMA
from tests.support.reference import Tables

CATALOG = compile_schema(SCHEMA).catalog
ACTOR = Identity.of("act-ana", {"level": 1, "words": ["red", "a", "b"]})

Row = Mapping[str, Any]
Condition = tuple[str, Callable[[Row], bool]]


def _more(name: str, than: int) -> Condition:
    return f"$row.{name} > {than}", lambda row: row.get(name) is not None and row[name] > than


_LEVEL: Condition = ("$row.note = $actor.level", lambda row: row["note"] == 1)
_NOBODY: Condition = ("$actor.level > 5", lambda row: False)
_ANYBODY: Condition = ('$actor.id = "act-ana"', lambda row: True)

CONDITIONS: dict[str, tuple[Condition, ...]] = {
    "Person": (
        _more("age", 0),
        _LEVEL,
        ('$row.name != "a"', lambda row: row["name"] != "a"),
        ("$actor.words contains $row.name", lambda row: row["name"] in ("red", "a", "b")),
        ('$row.bio contains "red"', lambda row: row["bio"] is not None and "red" in row["bio"]),
        ("$row.rank is null", lambda row: row["rank"] is None),
        (
            "9223372036854775806 + $row.age > 0",
            lambda row: row["age"] is not None and row["age"] < 2,
        ),
    ),
    "City": (
        _more("size", 0),
        _LEVEL,
        ("$row.open = true or $row.size = 1", lambda row: row["open"] is True or row["size"] == 1),
    ),
    "Knows": (_more("since", 0), _NOBODY),
    "LivesIn": (_more("since", 0), _ANYBODY),
    "Likes": (_more("since", 1), _NOBODY),
    "Twin": (_NOBODY, _ANYBODY),
    "Near": (_ANYBODY,),
    "Owns": (_ANYBODY,),
}


@dataclass(frozen=True)
class Rights:
    """What a bundle grants of one type."""

    properties: frozenset[str] | None
    rows: tuple[Condition, ...] | None


@dataclass(frozen=True)
class RandomView:
    """What each type shows, by name; types that are hidden are missing."""

    types: Mapping[str, Rights]

    @classmethod
    def of_everything(cls) -> RandomView:
        """The view that hides nothing."""
        return cls({type.name: Rights(None, None) for type in CATALOG.types})

    def __repr__(self) -> str:
        return self.bundle()

    def bundle(self) -> str:
        """A bundle that grants it, with a rule for each condition of a type."""
        rules = max([len(each.rows or "1") for each in self.types.values()], default=1)
        lines = ["version: 2", "groups: {readers: [act-ana]}", "rules:"]
        allow = "{actors: {group: readers}, actions: [read, export]}"
        for number in range(rules):
            lines += [f"  - id: rule-{number}", f"    allow: {allow}", "    types:"]
            granted = [
                f"      {name}: {_grant(each, number)}"
                for name, each in self.types.items()
                if number < len(each.rows or "1")
            ]
            lines += granted or ["      {}"]
        return "\n".join(lines) + "\n"

    @cached_property
    def policy(self) -> Policy:
        """The policy of the bundle."""
        return load_policy(self.bundle())

    @cached_property
    def catalog(self) -> Catalog:
        """The types as the actor sees them."""
        view = self.policy.view(ACTOR, CATALOG, branch="main")
        return CATALOG if view is None else view.catalog

    def left_of(self, tables: Tables) -> Tables:
        """The rows of a graph that are visible."""
        left: dict[str, list[Any]] = {key: [] for key in tables}
        nodes = set()
        for key, rows in tables.items():
            kind, _, name = key.partition(":")
            if kind == "node" and name in self.types:
                left[key] = [row for row in rows if self._grants(name, row)]
                nodes |= {(name, row["id"]) for row in left[key]}
        for key, rows in tables.items():
            name = key.partition(":")[2]
            if name not in self.types or name not in CATALOG.edges:
                continue
            left[key] = [
                row
                for row in rows
                if self._grants(name, row)
                and all(_node_at(name, end, row[end]) in nodes for end in ("src", "dst"))
            ]
        return left

    def _grants(self, name: str, row: Row) -> bool:
        conditions = self.types[name].rows
        return conditions is None or any(holds(row) for _, holds in conditions)


def _node_at(edge: str, end: str, stored: str) -> tuple[str, str]:
    type = CATALOG.edges[edge]
    for name, prefix in type.end_types.get(end, {}).items():
        if stored.startswith(prefix):
            return name, stored.removeprefix(prefix)
    return (type.source if end == "src" else type.target), stored


def _grant(rights: Rights, number: int) -> str:
    facts = []
    if rights.properties is not None:
        facts.append(f"properties: [{', '.join(sorted(rights.properties))}]")
    if rights.rows is not None:
        text = rights.rows[number][0].replace("'", "''")
        facts.append(f"where: '{text}'")
    return f"{{{', '.join(facts)}}}" if facts else "all"


@st.composite
def random_views(draw: st.DrawFn) -> RandomView:
    """Views that hide some types, properties and rows."""
    types: dict[str, Rights] = {}
    for type in CATALOG.types:
        if draw(st.integers(0, 7)) == 0:
            continue
        properties = None
        if draw(st.integers(0, 5)) == 0:
            names = sorted(type.properties)
            hidden = draw(st.sets(st.sampled_from(names), max_size=2)) if names else set()
            properties = frozenset(type.properties) - (hidden - {"name"})
        rows = None
        if draw(st.integers(0, 2)) != 0:
            some = st.lists(st.sampled_from(CONDITIONS[type.name]), max_size=2, unique=True)
            rows = tuple(draw(some)) or None
        types[type.name] = Rights(properties, rows)
    if not types.keys() & MEMBERS["Thing"]:
        types["Person"] = Rights(None, (_more("age", 0),))
    return RandomView(types)
