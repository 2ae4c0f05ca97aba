"""Random small graphs, and random matches that are valid by construction.

A clause knows what it introduces and what must stand before it, so that a match can be written in
another order without meaning something else.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

SCHEMA = """
interface Thing { name: String  note: I32? }
node Person implements Thing {
    name: String @key
    age: I32? @index
    rank: F64?
    bio: String? @index
    tags: [String]?
    vec: Vector(2)? @index
    born: Date?
    seen: DateTime?
}
node City implements Thing { name: String @key  size: I32?  motto: String?  open: Bool? }
edge Knows: Person -> Person { since: I32? }
edge LivesIn: Person -> City { since: I32? }
edge Twin: City -> City
edge Likes: Person -> Thing { since: I32? }
edge Near: Thing -> Thing
edge Owns: Thing -> City
"""

ENDS = {
    "knows": ("Person", "Person"),
    "livesIn": ("Person", "City"),
    "twin": ("City", "City"),
    "likes": ("Person", "Thing"),
    "near": ("Thing", "Thing"),
    "owns": ("Thing", "City"),
}
"""Edge words with the types at their ends."""
MEMBERS = {"Person": {"Person"}, "City": {"City"}, "Thing": {"Person", "City"}}
"""The node types of each type."""
NUMBERS = {"Person": ("age", "rank"), "City": ("size",), "Thing": ("note",)}
TEXTS = {"Person": ("bio", "name"), "City": ("motto", "name"), "Thing": ("name",)}
EDGE_NUMBERS = {"knows": "since", "livesIn": "since", "likes": "since"}
SCALARS = {
    "Person": ("name", "age", "rank", "bio", "@type"),
    "City": ("name", "size", "motto", "open"),
    "Thing": ("name", "note", "@type"),
}
WORDS = ("red", "fox", "river", "lamp", "walked", "the", "walking")
NAMES = ("a", "b", "c", "d", "e")

Record = dict[str, Any]


# --- graphs ---------------------------------------------------------------------------------------


def records(choices: random.Random) -> list[Record]:
    """The records of a small graph; ids of the two node types overlap, self-loops occur."""

    def maybe(value: Callable[[], Any]) -> Any:
        return None if choices.random() < 0.2 else value()

    def text() -> str:
        return " ".join(choices.choices(WORDS, k=choices.randint(0, 4)))

    people = NAMES[: choices.randint(2, len(NAMES))]
    cities = NAMES[: choices.randint(1, 3)]
    made: list[Record] = []
    for name in choices.sample(people, len(people)):
        data = {
            "name": name,
            "age": maybe(lambda: choices.randint(-1, 3)),
            "rank": maybe(lambda: choices.choice([-1.5, 0.0, 0.5, 2.0, 3.0])),
            "bio": maybe(text),
            "tags": maybe(lambda: choices.choices(["x", "y", ""], k=choices.randint(0, 3))),
            "vec": maybe(lambda: [float(choices.randint(0, 2)), choices.choice([0.0, 0.5])]),
            "note": maybe(lambda: choices.randint(0, 2)),
            "born": maybe(lambda: choices.choice(["1969-12-31", "2000-01-31", "2024-02-29"])),
            "seen": maybe(lambda: f"2024-02-{choices.randint(27, 29)}T23:59:59.5Z"),
        }
        made.append({"type": "Person", "data": data})
    for name in choices.sample(cities, len(cities)):
        data = {
            "name": name,
            "size": maybe(lambda: choices.randint(0, 2)),
            "motto": maybe(text),
            "open": maybe(lambda: choices.random() < 0.5),
            "note": maybe(lambda: choices.randint(0, 2)),
        }
        made.append({"type": "City", "data": data})
    made += _edges(choices, "Knows", people, people, 10, "since")
    made += _edges(choices, "LivesIn", people, cities, 8, "since")
    made += _edges(choices, "Twin", cities, cities, 5, None)
    things = [("Person", name) for name in people] + [("City", name) for name in cities]
    made += _typed_ends(choices, _edges(choices, "Likes", people, cities, 6, "since"), things, "to")
    near = _typed_ends(choices, _edges(choices, "Near", people, people, 8, None), things, "from")
    made += _typed_ends(choices, near, things, "to")
    made += _typed_ends(choices, _edges(choices, "Owns", people, cities, 5, None), things, "from")
    return made


def _typed_ends(
    choices: random.Random, edges: list[Record], nodes: Sequence[tuple[str, str]], end: str
) -> list[Record]:
    """Edges with nodes of any of the types at one end."""
    for edge in edges:
        edge[f"{end}_type"], edge[end] = choices.choice(nodes)
    return edges


def _edges(
    choices: random.Random,
    type_name: str,
    sources: Sequence[str],
    targets: Sequence[str],
    most: int,
    number: str | None,
) -> list[Record]:
    made = []
    ids = choices.sample(range(100), choices.randint(most // 2, most))
    for at in ids:
        data: Record = {"id": f"{type_name}-{at:02}"}
        if number is not None and choices.random() < 0.7:
            data[number] = choices.randint(0, 3)
        ends = {"from": choices.choice(sources), "to": choices.choice(targets)}
        made.append({"edge": type_name, **ends, "data": data})
    return made


# --- matches --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Clause:
    """One clause at the top of a match."""

    text: str
    introduces: frozenset[str] = frozenset()
    needs: frozenset[str] = frozenset()
    """What must be introduced before it, for it to mean the same."""


@dataclass
class Names:
    """Variables a clause may use."""

    nodes: dict[str, str] = field(default_factory=dict)
    """Node variables that are certainly bound, with their types."""
    optional: dict[str, str] = field(default_factory=dict)
    """Node variables that may be null: to be read, and to be hopped from in nested blocks."""
    edges: dict[str, str] = field(default_factory=dict)
    """Edge variables with their edge words."""
    paths: set[str] = field(default_factory=set)
    values: dict[str, str] = field(default_factory=dict)
    """Names of values of the stage before: `number`, `text` or `other`."""
    items: set[str] = field(default_factory=set)
    """Variables of the items of lists of texts."""

    def inner(self) -> Names:
        """What a nested block sees."""
        nodes, values = self.nodes | self.optional, dict(self.values)
        return Names(nodes, {}, dict(self.edges), set(self.paths), values, set(self.items))

    @property
    def readable(self) -> dict[str, str]:
        return self.nodes | self.optional

    @property
    def all(self) -> set[str]:
        return {*self.nodes, *self.optional, *self.edges, *self.paths, *self.items}


class MatchWriter:
    """Draws the clauses of a match."""

    def __init__(self, draw: st.DrawFn) -> None:
        self._draw = draw
        self._count = 0

    def match(self) -> tuple[list[Clause], Names]:
        """A match, and the variables it binds."""
        names = Names()
        clauses = [self._binding(names)]
        for _ in range(self._draw(st.integers(1, 5))):
            clauses += self._clauses(names, depth=2)
        return clauses, names

    def next_match(self, names: Names) -> list[Clause]:
        """The match after a stage, possibly none; ``names`` are those of the stage, and of both."""
        clauses = [] if names.nodes else [self._binding(names)]
        for _ in range(self._draw(st.integers(0, 3))):
            clauses += self._clauses(names, depth=2)
        return clauses

    def _fresh(self) -> str:
        # Drawn letters come first, so that the order of names is not the order of clauses.
        self._count += 1
        return f"{self._draw(st.sampled_from('mpz'))}{self._count}"

    def _pick(self, options: Iterable[str]) -> str:
        return self._draw(st.sampled_from(sorted(options)))

    def _binding(self, names: Names) -> Clause:
        types = ["Person", "Person", "City", "Thing"]
        name, type_name = self._fresh(), self._draw(st.sampled_from(types))
        names.nodes[name] = type_name
        pair = ""
        if self._draw(st.integers(0, 7)) == 7:
            pair = self._pair(type_name)
        return Clause(f"${name}: {type_name}{pair}", frozenset({name}))

    def _pair(self, type_name: str) -> str:
        kinds = [f'name: "{self._draw(st.sampled_from(NAMES))}"']
        if type_name == "Person":
            kinds += [f"age: {self._draw(st.integers(0, 2))}", 'tags: "x"', "rank: 0.5"]
        elif type_name == "Thing":
            kinds += [f"note: {self._draw(st.integers(0, 2))}"]
        else:
            kinds += [f"size: {self._draw(st.integers(0, 2))}", "open: true"]
        return f" {{ {self._draw(st.sampled_from(kinds))} }}"

    def _clauses(self, names: Names, depth: int) -> list[Clause]:
        kinds = ["hop", "hop", "hop", "hop", "binding", "filter", "filter", "text", "unnest"]
        if depth > 0:
            kinds += ["not", "any", "optional", "block"]
        kind = self._draw(st.sampled_from(kinds))
        match kind:
            case "binding":
                return [self._binding(names)]
            case "hop":
                return self._hop(names)
            case "unnest":
                return self._unnest(names)
            case "filter" | "text":
                text = self._filter(names) if kind == "filter" else self._text(names)
                return [Clause(text, needs=frozenset(names.all))] if text else []
        if kind == "block":
            return [Clause(self._block_test(names, depth), needs=frozenset(names.all))]
        return self._block(kind, names, depth)

    def _unnest(self, names: Names) -> list[Clause]:
        """A list as rows, and possibly a condition on its items."""
        name = self._fresh()
        lists = [f'split("x y {name}", " ")', '["x", "x", ""]']
        lists += [f"${n}.tags" for n, of in names.readable.items() if of == "Person"] * 3
        lists += [f"collect {{ ${n} near $_ return {{ ${n}.name }} }}" for n in sorted(names.nodes)]
        found = self._draw(st.sampled_from(lists))
        unnest = Clause(f"unnest ${name} in {found}", frozenset({name}), frozenset(names.all))
        names.items.add(name)
        if self._draw(st.booleans()):
            return [unnest]
        other = self._pick(names.readable)
        tests = [
            f'${name} >= "x"',
            f'${name} != "y"',
            f"${name} is not null",
            f"${name} = ${other}.name",
            f"length(${name}) < 2",
            *(f"${name} = (${each})" for each in sorted(names.items)),
        ]
        test = self._draw(st.sampled_from(tests))
        return [unnest, Clause(test, needs=frozenset({name, other} | names.items))]

    def _block_test(self, names: Names, depth: int) -> str:
        """A condition on the value of a block."""
        text, inner = self.inside(names.inner(), depth - 1)
        number = self._number_in(inner)
        tests = [
            f"exists {{ {text} }}",
            f"exists {{ {text} }} = false",
            f"count {{ {text} }} {self._operator()} {self._draw(st.integers(0, 3))}",
            f"max {{ {text} return {{ {number} }} }} {self._operator()} 1",
            f"sum {{ {text} return distinct {{ {number} }} }} > 0",
            f"length(collect {{ {text} return {{ {number} }} }}) < 2",
        ]
        return self._draw(st.sampled_from(tests))

    def _number_in(self, names: Names) -> str:
        name = self._pick(names.readable)
        return f"${name}.{NUMBERS[names.readable[name]][0]}"

    def block_value(self, names: Names) -> tuple[str, bool]:
        """A block as an item, and whether it is a single value."""
        text, inner = self.inside(names.inner(), 1)
        number = self._number_in(inner)
        name = self._pick(inner.readable)
        limit = self._draw(st.sampled_from(["", " limit 1", " limit 2"]))
        direction = self._draw(st.sampled_from(["", " desc"]))
        records = f"return {{ ${name}.name as n, {number} as x, ${name} as y }}"
        blocks = [
            (f"count {{ {text} }}", True),
            (f"exists {{ {text} }}", True),
            (f"avg {{ {text} return {{ {number} }} }}", True),
            (f"min {{ {text} return {{ ${name}.name }} }}", True),
            (f"count {{ {text} return distinct {{ {number} }} }}", True),
            (f"collect {{ {text} return {{ {number} }}{limit} }}", False),
            (f"collect {{ {text} return distinct {{ ${name}.name }}{limit} }}", False),
            (f"collect {{ {text} {records} order {{ x{direction} }}{limit} }}", False),
            (f"collect {{ {text} {records}{limit} }}", False),
        ]
        return self._draw(st.sampled_from(blocks))

    def _block(self, kind: str, names: Names, depth: int) -> list[Clause]:
        needs = frozenset(names.all)
        if kind == "any":
            alternatives = [
                self.inside(names.inner(), depth - 1) for _ in range(self._draw(st.integers(1, 2)))
            ]
            texts = [f"all {{ {text} }}" for text, _ in alternatives]
            return [Clause(f"any {{ {' '.join(texts)} }}", needs=needs)]
        text, inner = self.inside(names.inner(), depth - 1)
        introduced: set[str] = set()
        if kind == "optional":
            introduced = inner.all - names.all
            names.optional |= {n: t for n, t in inner.readable.items() if n in introduced}
            names.edges |= {n: w for n, w in inner.edges.items() if n in introduced}
            names.paths |= inner.paths & introduced
            names.items |= inner.items & introduced
        return [Clause(f"{kind} {{ {text} }}", frozenset(introduced), needs)]

    def inside(self, names: Names, depth: int) -> tuple[str, Names]:
        """The clauses of a block; the first one mentions something outside of it."""
        outer = self._pick(names.nodes)
        if self._draw(st.booleans()):
            known = set(names.nodes)
            clauses = self._hop(names, outer)
            for name in sorted(set(names.nodes) - known):
                if self._draw(st.booleans()):
                    # Few nodes to begin with, so that the block is worth solving from there.
                    letter = self._draw(st.sampled_from(NAMES))
                    clauses.append(Clause(f'${name}.name = "{letter}"'))
        else:
            clauses = [Clause(self._comparison(outer, names.nodes[outer]))]
        for _ in range(self._draw(st.integers(0, 1))):
            clauses += self._clauses(names, depth)
        return "  ".join(clause.text for clause in clauses), names

    # --- hops -------------------------------------------------------------------------------------

    def _hop(
        self, names: Names, left: str | None = None, *, may_close: bool = True
    ) -> list[Clause]:
        left = left or self._pick(names.nodes)
        left_type = names.nodes[left]
        word = self._pick(
            word for word, ends in ENDS.items() if any(_meet(left_type, end) for end in ends)
        )
        source, target = ENDS[word]
        right_type = _right_type(left_type, source, target)
        is_mixed = "Thing" in (source, target, left_type)
        known = [
            name
            for name, type_name in names.nodes.items()
            if may_close
            and (_fits(left_type, type_name, word) if is_mixed else type_name == right_type)
        ]
        right = self._draw(st.sampled_from([*known[:3], "new", "new", "_"]))
        if right == "new" and right_type == "Thing":
            right_type = self._draw(
                st.sampled_from([each for each in MEMBERS if _fits(left_type, each, word)])
            )
        bindings: list[Clause] = []
        if right == "new":
            right = self._fresh()
            names.nodes[right] = right_type
            # Typed in so many words, so that no order of the clauses types it otherwise.
            bindings.append(Clause(f"${right}: {right_type}", frozenset({right})))
        introduced = {name for name in (left, right) if name != "_"}
        one_type = source == target
        forms = ["plain", "plain", "bounds", "edge", "path", "path"]
        form = self._draw(st.sampled_from([*forms, *["cheapest"] * (word in EDGE_NUMBERS)]))
        undirected = one_type and self._draw(st.integers(0, 2)) == 0
        shown = f"<{word}>" if undirected else word
        bounds, via, edge = "", "", ""
        if form == "bounds" or (form == "path" and self._draw(st.booleans())):
            low = self._draw(st.sampled_from([1, 1, 2, 3, 0]))
            high = self._draw(st.sampled_from([low, low + 1, low + 2, ""]))
            bounds = f"{{{low},{high}}}"
        if form == "edge":
            name = self._fresh()
            names.edges[name] = word
            introduced.add(name)
            edge = f"${name}:"
        if form == "path":
            name = self._fresh()
            names.paths.add(name)
            introduced.add(name)
            via = f" via {self._draw(st.sampled_from(['', '', 'all ']))}${name}"
        if form == "cheapest":
            name, of_edges = self._fresh(), self._fresh()
            names.paths.add(name)
            introduced.add(name)
            edge = f"${of_edges}:"
            bounds = self._draw(st.sampled_from(["{1,}", "{0,}"]))
            via = f" via cheapest ${name}{self._weight(of_edges)}"
        text = f"${left} {edge}{shown}{bounds} ${right}{via}"
        # A hop types its ends by what stands before it; between two types that decides where it
        # goes, and an optional variable must not turn into one of the block.
        needs = frozenset() if one_type else frozenset({left})
        if is_mixed or "Thing" in (names.nodes.get(right), right_type):
            # An interface fits several types, so both ends have to be typed before.
            hop = Clause(text, frozenset(introduced), frozenset({left, right} - {"_"}))
            return [*bindings, hop]
        hop = Clause(text, frozenset(introduced), needs)
        return [hop, *bindings] if self._draw(st.booleans()) else [*bindings, hop]

    def _weight(self, edge: str) -> str:
        """What a cheapest path adds up: a property, or an expression over an edge and its ends."""
        plain = f"${edge}.since"
        near, far = self._fresh(), self._fresh()
        # Every type has notes, so it does not matter which way the edge is followed.
        one, other = f"${near}.note", f"${far}.note"
        step = f" from ${near} to ${far} by"
        return self._draw(
            st.sampled_from(
                [
                    f" by {plain}",
                    f" by {plain}",
                    f" by {plain} * 2 + 0.5",
                    f"{step} abs({one} - {other})",
                    f"{step} if({one} < {other}, 1, {plain} + 2)",
                    f"{step} case {{ {one} is not null: 0.25 + {plain} }}",
                    f"{step} 1 + count {{ ${near} near $_ }}",
                    f"{step} max {{ ${far} near $z  return {{ $z.note }} }} + {plain}",
                    f"{step} if(exists {{ ${near} <near> ${far} }}, 0, 1)",
                ]
            )
        )

    # --- conditions -------------------------------------------------------------------------------

    def _filter(self, names: Names) -> str:
        options = [*names.readable, *(e for e in names.edges if names.edges[e] in EDGE_NUMBERS)]
        options += sorted(names.paths)
        numbers = [name for name, kind in names.values.items() if kind == "number"]
        if numbers and self._draw(st.integers(0, 2)) == 0:
            return f"{self._pick(numbers)} {self._operator()} {self._draw(st.integers(0, 3))}"
        name = self._pick(options)
        if name in names.paths:
            return f"${name}.length > {self._draw(st.integers(0, 2))}"
        if name in names.edges:
            return f"${name}.since {self._operator()} {self._draw(st.integers(0, 3))}"
        if self._draw(st.integers(0, 3)) == 0:
            return self._join(name, names)
        return self._comparison(name, names.readable[name])

    def _operator(self) -> str:
        return self._draw(st.sampled_from(["=", "!=", "<", "<=", ">", ">="]))

    def _join(self, name: str, names: Names) -> str:
        """A condition on two variables."""
        left = f"${name}.{self._pick(NUMBERS[names.readable[name]])}"
        other = self._pick(names.readable)
        numbers = [name for name, kind in names.values.items() if kind == "number"]
        if numbers and self._draw(st.integers(0, 1)) == 0:
            return f"{left} {self._operator()} {self._pick(numbers)}"
        right = f"${other}.{self._pick(NUMBERS[names.readable[other]])}"
        if self._draw(st.booleans()):
            right += f" + {self._draw(st.integers(0, 2))}"
        return f"{left} {self._operator()} {right}"

    def _comparison(self, name: str, type_name: str) -> str:
        number = f"${name}.{self._pick(NUMBERS[type_name])}"
        text = f"${name}.{self._pick(TEXTS[type_name])}"
        small = self._draw(st.integers(0, 2))
        options = [
            f"{number} >= {small}",
            f"{number} < {small}.5",
            f"{number} {self._operator()} {small}",
            f"{number} * 2 {self._operator()} {small}",
            f"{number} in [{small}, 2, 0.5]",
            f"{number} is null",
            f"{number} is not null",
            f'{text} contains "e"',
            f'{text} starts_with "r"',
            f'{text} != "red"',
            f"length({text}) > {small}",
            f"{number} % 2 = {small}",
            f"if({number} > {small}, {number}, 7) {self._operator()} 2",
            f'{text} ends_with "e"',
            f'{text} matches "^r|x$"',
            f"coalesce({number}, 1) >= 1",
            f"${name} is not null",
        ]
        if type_name == "Person":
            options += [f'${name}.tags contains "x"', f"length(${name}.tags) < 2"]
        elif type_name == "Thing":
            options += [f'${name}.@type = "City"', f"${name} is not City"] * 2
        else:
            options += [f"${name}.open = true"]
        return self._draw(st.sampled_from(options))

    def _text(self, names: Names) -> str:
        searched = [name for name, type_name in names.readable.items() if type_name != "Thing"]
        if not searched:
            return ""
        name = self._pick(searched)
        prop = TEXTS[names.readable[name]][0]
        words = " ".join(self._draw(st.lists(st.sampled_from(WORDS), min_size=1, max_size=3)))
        if self._draw(st.booleans()):
            return f'fuzzy(${name}.{prop}, "{words}", {self._draw(st.integers(0, 2))})'
        call = self._draw(st.sampled_from(["search", "match_text"]))
        kind = self._draw(st.sampled_from([None, "phrase", "all_words", "prefix", "text_query"]))
        text = f'"{words}"' if kind is None else f'{kind}("{words}")'
        if kind == "text_query":
            one, other = self._draw(st.sampled_from(WORDS)), self._draw(st.sampled_from(WORDS))
            operator = self._draw(st.sampled_from([" OR ", " AND ", " ", " NOT ", "* OR "]))
            text = f'text_query("{one}{operator}{other[:2]}* OR \\"{words}\\"")'
        return f"{call}(${name}.{prop}, {text})"


def _meet(left: str, right: str) -> bool:
    """Whether two types have nodes in common."""
    return bool(MEMBERS[left] & MEMBERS[right])


def _fits(left: str, right: str, word: str) -> bool:
    """Whether an edge may lead from a node of one type to one of another, or back."""
    source, target = ENDS[word]
    out = _meet(left, source) and _meet(right, target)
    return out or (_meet(left, target) and _meet(right, source))


def _right_type(left: str, source: str, target: str) -> str:
    """What an untyped right end becomes: by an exact left end, and else by one that fits."""
    if left in (source, target):
        return target if left == source else source
    return target if _meet(left, source) else source


class TreeWriter(MatchWriter):
    """Draws matches whose hops form a tree, with conditions mostly on single variables."""

    def match(self) -> tuple[list[Clause], Names]:
        names = Names()
        clauses = [self._binding(names)]
        for _ in range(self._draw(st.integers(1, 4))):
            clauses += self._hop(names, may_close=False)
        for _ in range(self._draw(st.integers(0, 3))):
            kinds = ["filter", "filter", "filter", "not", "any", "hop", "unnest"]
            kind = self._draw(st.sampled_from(kinds))
            if kind == "unnest":
                clauses += self._unnest(names)
            elif kind == "filter":
                clauses.append(Clause(self._filter(names), needs=frozenset(names.all)))
            elif kind == "hop":
                clauses += self._hop(names)
            else:
                clauses += self._block(kind, names, 1)
        return clauses, names
