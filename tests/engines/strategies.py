"""Random queries that are valid by construction, over the graphs of `matches`.

A query is text: it goes through the parser, the checker and the planner like any other.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from hypothesis import strategies as st

from tests.engines.matches import (
    EDGE_NUMBERS,
    NUMBERS,
    SCALARS,
    TEXTS,
    WORDS,
    Clause,
    MatchWriter,
    Names,
    TreeWriter,
)

# --- queries --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Query:
    """A query in its parts."""

    clauses: tuple[Clause, ...]
    tail: str
    """Everything from `return` on, without the limit."""
    limit: str
    stages: tuple[str, ...] = ()
    """The text of each stage before, from its `match` to its limit."""
    given: frozenset[str] = frozenset()
    """The variables that the last of them hands on."""

    def text(self, *, limited: bool = True) -> str:
        end = f"\n  {self.limit}" if limited and self.limit else ""
        parts = [*self.stages, f"{_match(self.clauses)}{self.tail}{end}"]
        return "query q() {\n  " + "\n  ".join(parts) + "\n}"

    def __str__(self) -> str:
        return self.text()


def _match(clauses: Sequence[Clause]) -> str:
    """The match of some clauses, to be followed by what it returns; of none, nothing."""
    if not clauses:
        return ""
    inner = "\n    ".join(clause.text for clause in clauses)
    return f"match {{\n    {inner}\n  }}\n  "


class TailWriter:
    """Draws what follows a match."""

    def __init__(self, draw: st.DrawFn, names: Names, writer: MatchWriter | None = None) -> None:
        self._draw = draw
        self._names = names
        self._writer = writer
        """Draws blocks, if there may be some."""

    def tail(self, kind: str | None = None) -> tuple[str, str]:
        """The text from `return` on, and the limit."""
        kind = kind or self._draw(st.sampled_from(["rows", "rows", "groups", "rank"]))
        ranked = [name for name, of in self._names.readable.items() if of != "Thing"]
        if kind == "rank" and not ranked:
            kind = "rows"
        if kind == "groups":
            items, keys = self._groups()
        else:
            items, keys = self._items()
        distinct = " distinct" if self._draw(st.integers(0, 5)) == 5 else ""
        if self._writer is not None and self._draw(st.integers(0, 3)) == 3:
            value, is_single = self._writer.block_value(self._names)
            if is_single:
                items.append(f"{value} as b")
                keys.append("b")
            elif kind != "groups":
                items.append(f"{value} as b")
                distinct = ""  # lists of records are not compared
        things = {f"${name}" for name, of in self._names.readable.items() if of == "Thing"}
        if any(item.split(" as ")[0] in things for item in items) and (
            kind == "rank" or any(item.endswith("extra") for item in items)
        ):
            distinct = ""  # nodes of an interface are grouped, which whole entities are not
        having = self._having(keys)
        if kind == "rank":
            rank, needs_limit = self._rank(self._draw(st.sampled_from(sorted(ranked))))
            order, ordered = f" order {{ {rank} }}", True
        else:
            needs_limit = False
            order = self._order(keys)
            ordered = bool(order)
        limit = self._limit(needs_limit, ordered)
        if ordered and kind != "rank" and self._draw(st.integers(0, 4)) == 4:
            per = self._per(keys, grouped=kind == "groups" or bool(distinct))
            order += f" limit {self._draw(st.integers(1, 2))} per {per}"
        return f"return{distinct} {{ {', '.join(items)} }}{having}{order}", limit

    def _per(self, keys: Sequence[str], grouped: bool) -> str:
        """What a limit of groups is per: where rows are grouped or distinct, what they return.

        ``keys`` are aliases of single values: a limit is not per a list such as a `collect`.
        """
        plain = [key for key in keys if key[0] in "cg"]
        if grouped:
            return self._draw(st.sampled_from(plain or list(keys)))
        return self._draw(st.sampled_from([*plain, *(f"${n}" for n in self._names.readable)]))

    def _values(self) -> list[str]:
        """Values that may be returned and ordered by."""
        names = self._names
        found = [f"${name}.{p}" for name, t in names.readable.items() for p in SCALARS[t]]
        found += [f"${name}" for name in names.readable]
        found += [f"${e}.since" for e, word in names.edges.items() if word in EDGE_NUMBERS]
        found += [f"${name}.length" for name in names.paths]
        found += [f"${name}" for name in names.items] * 2
        found += [name for name, kind in names.values.items() if kind != "other"]
        found += [f"${n}.{NUMBERS[t][0]} * 2 - 1" for n, t in names.readable.items()]
        for name, type_name in names.readable.items():
            number, text = f"${name}.{NUMBERS[type_name][0]}", f"${name}.{TEXTS[type_name][0]}"
            found += [
                f'case {{ {number} > 1: {text}, {number} is null: ${name}.name, else: "no" }}',
                f'if({text} contains "e" and {number} < 2, {number} % 2, 0.5)',
                f'concat(substring({text}, 1, 3), "|", trim({text}))',
                f"round(sqrt({number}), 4)",
            ]
            if type_name == "Person":
                found += [
                    f"${name}.tags[{number}]",
                    f"size(${name}.tags)",
                    f"${name}.born + months({number})",
                    f'date_trunc("month", ${name}.seen - hours(3))',
                    f'${name}.seen - datetime("2024-02-28")',
                ]
        return sorted(found)

    def _items(self) -> tuple[list[str], list[str]]:
        values = self._draw(st.lists(st.sampled_from(self._values()), min_size=1, max_size=3))
        items = [f"{value} as c{at}" for at, value in enumerate(values)]
        keys = [f"c{at}" for at in range(len(values))]
        people = [name for name, type_name in self._names.readable.items() if type_name == "Person"]
        extra = [f"${name}.*" for name in self._names.readable]
        extra += [f"${name}.{p}" for name in people for p in ("tags", "vec")]
        extra += [f"${n}.{part}" for n in self._names.paths for part in ("nodes", "edges")]
        extra += [f'search(${name}.bio, "fox")' for name in people]
        extra += [f"nearest(${name}.vec, [1, 0])" for name in people]
        if self._draw(st.booleans()):
            items.append(f"{self._draw(st.sampled_from(sorted(extra)))} as extra")
        return items, keys

    def _groups(self) -> tuple[list[str], list[str]]:
        values = self._draw(st.lists(st.sampled_from(self._values()), max_size=2))
        items = [f"{value} as g{at}" for at, value in enumerate(values)]
        keys = [f"g{at}" for at in range(len(values))]
        for at in range(self._draw(st.integers(1, 2))):
            name, type_name = self._draw(st.sampled_from(sorted(self._names.readable.items())))
            number = f"${name}.{NUMBERS[type_name][0]}"
            edges = [e for e, word in sorted(self._names.edges.items()) if word in EDGE_NUMBERS]
            of_edges = [
                f"{function}(${edge}.since)"
                for edge in edges
                for function in ("count", "sum", "avg", "min", "max")
            ]
            call = self._draw(
                st.sampled_from(
                    [
                        *of_edges,
                        *(f"count(distinct ${item})" for item in sorted(self._names.items)),
                        *(f"max(${item})" for item in sorted(self._names.items)),
                        "count(*)",
                        f"count(${name})",
                        f"count(distinct ${name})",
                        f"count({number})",
                        f"count(distinct {number})",
                        f"sum({number})",
                        f"avg({number})",
                        f"min({number})",
                        f"max(${name}.name)",
                        f"collect({number})",
                        f"collect(distinct ${name}.name)",
                        "count(*) * 2",
                        f"median({number})",
                        f"percentile(distinct {number}, 0.25)",
                        f"round(stddev({number}), 6)",
                        *(
                            [f"min(${name}.born)", f"max(${name}.seen)"]
                            if type_name == "Person"
                            else []
                        ),
                    ]
                )
            )
            items.append(f"{call} as a{at}")
            if not call.startswith("collect"):
                keys.append(f"a{at}")
        return items, keys

    def _having(self, keys: Sequence[str]) -> str:
        if not keys or self._draw(st.integers(0, 5)) < 5:
            return ""
        return f" having {{ {self._draw(st.sampled_from(list(keys)))} is not null }}"

    def _order(self, keys: Sequence[str]) -> str:
        chosen = self._draw(st.lists(st.sampled_from(list(keys)), max_size=2)) if keys else []
        if not chosen:
            return ""
        directed = [f"{key}{self._draw(st.sampled_from(['', ' asc', ' desc']))}" for key in chosen]
        return f" order {{ {', '.join(directed)} }}"

    def _limit(self, needed: bool, ordered: bool) -> str:
        if not needed and self._draw(st.booleans()):
            return ""
        limit = f"limit {self._draw(st.sampled_from([1, 2, 3, 5, 9, 20, 0]))}"
        if ordered and self._draw(st.integers(0, 3)) == 3:
            limit += f" offset {self._draw(st.integers(0, 3))}"
        return limit

    def _rank(self, name: str) -> tuple[str, bool]:
        prop = TEXTS[self._names.readable[name]][0]
        word = self._draw(st.sampled_from(WORDS))
        score = f'bm25(${name}.{prop}, "{word}")'
        if self._names.readable[name] != "Person":
            return score, False
        point = f"[{self._draw(st.integers(0, 2))}, {self._draw(st.integers(0, 2))}]"
        near = f"nearest(${name}.vec, {point})"
        options = [
            (score, False),
            (near, True),
            (f"rrf({near}, {score})", True),
            (f"rrf({score}, {near}, 1)", True),
            (f"rrf({near}, nearest(${name}.vec, [0, 1]))", True),
        ]
        return self._draw(st.sampled_from(options))


class StageWriter(TailWriter):
    """Draws what a stage hands on."""

    def stage(self) -> tuple[str, Names]:
        """The text from `with` on, and the names that the next match starts with."""
        readable = sorted(self._names.readable.items())
        carried = dict(self._draw(st.lists(st.sampled_from(readable), max_size=2, unique=True)))
        given = Names(
            {name: of for name, of in carried.items() if name in self._names.nodes},
            {name: of for name, of in carried.items() if name in self._names.optional},
        )
        items = [f"${name}" for name in carried]
        kinds = self._draw(
            st.lists(st.sampled_from(["number", "text", "count", "list", "block"]), max_size=2)
        )
        kinds = kinds if carried or kinds else ["count"]
        keys: list[str] = []
        for at, kind in enumerate(kinds):
            name, of = self._draw(st.sampled_from(readable))
            alias = f"v{at}"
            kind_of = {"count": "number", "list": "other", "block": "other"}
            given.values[alias] = kind_of.get(kind, kind)
            match kind:
                case "number":
                    items.append(f"${name}.{NUMBERS[of][0]} as {alias}")
                case "text":
                    items.append(f"${name}.name as {alias}")
                case "count":
                    items.append(f"count(*) as {alias}")
                case "block":
                    assert self._writer is not None
                    inner, _ = self._writer.inside(self._names.inner(), 1)
                    given.values[alias] = "number"
                    items.append(f"count {{ {inner} }} as {alias}")
                case "list":
                    items.append(f"collect(distinct ${name}.{NUMBERS[of][0]}) as {alias}")
            keys += [] if kind == "list" else [alias]
        distinct = " distinct" if self._draw(st.integers(0, 5)) == 5 else ""
        order = self._order(keys)
        # Which rows a limit leaves is open without an order.
        limit = f" {self._limit(False, True)}" if order else ""
        return f"with{distinct} {{ {', '.join(items)} }}{self._having(keys)}{order}{limit}", given


@st.composite
def tree_queries(draw: st.DrawFn) -> Query:
    """A valid query over `SCHEMA` that groups the solutions of a tree."""
    clauses, names = TreeWriter(draw).match()
    return Query(tuple(clauses), *TailWriter(draw, names).tail("groups"))


@st.composite
def queries(draw: st.DrawFn) -> Query:
    """A valid read query over `SCHEMA`."""
    writer = MatchWriter(draw)
    clauses, names = writer.match()
    stages: list[str] = []
    given: set[str] = set()
    for _ in range(draw(st.sampled_from([0, 0, 0, 0, 0, 1, 1, 2]))):
        text, names = StageWriter(draw, names, writer).stage()
        stages.append(_match(clauses) + text)
        given = names.all
        clauses = writer.next_match(names)
    tail, limit = TailWriter(draw, names, writer).tail()
    return Query(tuple(clauses), tail, limit, tuple(stages), frozenset(given))


def reordered(query: Query, choices: random.Random) -> Query:
    """The query with its clauses in another order that means the same."""
    waiting = list(query.clauses)
    introduced = set(query.given)
    order: list[Clause] = []
    while waiting:
        ready = [clause for clause in waiting if clause.needs <= introduced]
        clause = choices.choice(ready)
        waiting.remove(clause)
        order.append(clause)
        introduced |= clause.introduces
    return replace(query, clauses=tuple(order))
