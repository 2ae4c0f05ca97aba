"""Records for loads that skip bad ones, and a judge of these: a plain reading of the rules."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

import omnigraph as og
from omnigraph.graph import Graph
from tests.commit.loading import lines, node

SCHEMA = """
node Person {
    slug: String @key
    name: String
    age: I32?
    email: String?
    @unique(email)
    @range(age, 0..150)
}
node Note { text: String?  mark: String?  @unique(mark) }
edge Knows: Person -> Person @card(0..2) { since: I32? }
edge Likes: Person -> Note @card(2..)
edge Rates: Person -> Note { stars: I32?  code: String?  @key(src, dst)  @unique(code) }
"""


def edge(type: str, source: str, target: str, **data: Any) -> dict[str, Any]:
    return {"edge": type, "from": source, "to": target, "data": data}


SEED = [
    node("Person", slug="p0", name="Ada", email="m0"),
    node("Person", slug="p1", name="Bob", email="m1"),
    node("Note", id="n0", text="first", mark="a"),
    node("Note", id="n1", text="second", mark="b"),
    edge("Knows", "p0", "p1", id="k0", since=1),
    edge("Likes", "p0", "n0", id="l0"),
    edge("Likes", "p0", "n1", id="l1"),
    edge("Rates", "p0", "n0", stars=1, code="c0"),
]


def seeded(root: Path) -> None:
    og.init(root, SCHEMA).load(data=lines(*SEED), mode="append")


# --- the judge ------------------------------------------------------------------------------------

PROPERTIES = {
    "Person": ("name", "age", "email"),
    "Note": ("text", "mark"),
    "Knows": ("since",),
    "Likes": (),
    "Rates": ("stars", "code"),
}
ENDS = {"Knows": ("Person", "Person"), "Likes": ("Person", "Note"), "Rates": ("Person", "Note")}
BOUNDS = {"Knows": (0, 2), "Likes": (2, 99)}
UNIQUE = {"Person": "email", "Note": "mark", "Rates": "code"}


@dataclass(frozen=True)
class Record:
    """A record, and what the rules call it."""

    number: int
    type: str
    id: str
    given: bool
    """Whether others may have its id: it is a key, or was given."""
    values: dict[str, Any] = field(hash=False)
    ends: tuple[str, ...] = ()

    @property
    def entity(self) -> tuple[str, str]:
        return self.type, self.id

    @classmethod
    def of(cls, number: int, value: Any) -> Record | None:
        """None for one that is bad by itself."""
        if not isinstance(value, dict):
            return None
        name = value.get("type") or value.get("edge")
        if name not in PROPERTIES:
            return None
        data = dict(value.get("data", {}))
        ends = (value["from"], value["to"]) if "edge" in value else ()
        key = data.pop("slug", None) or data.pop("id", None)
        if name == "Rates":
            key = "->".join(ends)
        age = data.get("age")
        if name == "Person" and (key is None or ("name" in data and data["name"] is None)):
            return None
        if age is not None and (not isinstance(age, int) or not 0 <= age <= 150):
            return None
        return cls(number, name, key or f"#{number}", key is not None, data, ends)


Rows = dict[tuple[str, str], Record]


@dataclass
class Judge:
    """Which records are bad, by the rules of `loading.skipping`, for one mode and graph."""

    mode: str
    stored: Rows

    def skipped(self, records: dict[int, Any]) -> set[int] | None:
        """The numbers of bad records; None if the load cannot be mended by skipping."""
        read = {number: Record.of(number, value) for number, value in records.items()}
        good = [each for each in read.values() if each is not None]
        if self.mode != "merge":
            good = [each for each in good if each.type != "Person" or "name" in each.values]
        while True:
            bad = self.worst(good)
            if bad is None:
                return None
            if not bad:
                return set(records) - {each.number for each in good}
            good = [each for each in good if each.number not in bad]

    def worst(self, good: list[Record]) -> set[int] | None:
        """The records that break the first rule that is broken."""
        replaced = {each.type for each in good} if self.mode == "overwrite" else set()
        before = {key: row for key, row in self.stored.items() if key[0] not in replaced}
        groups: dict[tuple[str, str], list[Record]] = defaultdict(list)
        for each in good:
            groups[each.entity].append(each)
        bad: set[int] = set()
        rows: Rows = {}
        for entity, several in groups.items():
            own = before.get(entity)
            is_keyed = entity[0] == "Person"
            is_alone = len(several) == 1 or (self.mode == "merge" and not is_keyed)
            if not is_alone and entity[0] != "Rates":
                bad |= {each.number for each in several}
            if self.mode == "append" and own is not None and entity[0] != "Rates":
                bad |= {each.number for each in several}
            last = several[-1]
            if self.mode == "merge" and own is not None:
                last = replace(last, values={**own.values, **last.values})
            if entity[0] == "Person" and "name" not in last.values:
                bad.add(last.number)
            elif self.mode != "merge" or own is None or not same(own, last):
                rows[entity] = last
        if bad:
            return bad
        written = list(rows.values()) if self.mode == "merge" else good
        kept = {key: row for key, row in before.items() if key not in rows or self.mode == "append"}
        folded = {key[0] for key, several in groups.items() if len(several) > 1}
        for stage in (
            lambda: self.repeated(("Person", "Note"), good, written, kept, folded),
            lambda: self.dangling(written, kept, before, replaced),
            lambda: self.repeated(("Rates",), good, written, kept, folded),
            lambda: self.crowded(written, kept, before),
        ):
            bad_here = stage()
            if bad_here is None or bad_here:
                return bad_here
        return set()

    def repeated(
        self, types: Any, good: Any, written: Any, kept: Rows, folded: set[str]
    ) -> set[int]:
        bad: set[int] = set()
        for type in types:
            groups: list[Any] = [UNIQUE[type]]
            if type == "Rates":
                groups.append(None)
            for name in groups:
                keys = lambda rows: by_key(rows, type, name)  # noqa: B023, E731
                ours, old = keys(written), keys(kept.values())
                raw = keys(good) if self.mode == "merge" and type in folded else {}
                for key in {*ours, *raw}:
                    mine, records = ours.get(key, []), raw.get(key, [])
                    if len(mine) > 1 or len(records) > 1 or (mine and key in old):
                        bad |= {each.number for each in (*mine, *records)}
        return bad

    def dangling(
        self, written: Any, kept: Rows, before: Rows, replaced: set[str]
    ) -> set[int] | None:
        there = {each.entity for each in written} | set(before)
        for row in kept.values():
            if row.ends and any(end not in there for end in node_keys(row)):
                return None
        return {
            each.number
            for each in written
            if each.ends and any(end not in there for end in node_keys(each))
        }

    def crowded(self, written: Any, kept: Rows, before: Rows) -> set[int]:
        bad: set[int] = set()
        for type, (least, most) in BOUNDS.items():
            ours = [each for each in written if each.type == type]
            moved = {each.number: before[each.entity] for each in ours if each.entity in before}
            if self.mode == "append":
                moved = {}
            edges = Counter(each.ends[0] for each in (*ours, *kept.values()) if each.type == type)
            for source in {each.ends[0] for each in ours} | {e.ends[0] for e in moved.values()}:
                count = edges[source]
                if least <= count <= most:
                    continue
                bad |= {each.number for each in ours if each.ends[0] == source}
                if count < least:
                    bad |= {number for number, e in moved.items() if e.ends[0] == source}
        return bad


def same(one: Record, other: Record) -> bool:
    complete = [
        {name: row.values.get(name) for name in PROPERTIES[row.type]} for row in (one, other)
    ]
    return complete[0] == complete[1] and one.ends == other.ends


def by_key(rows: Any, type: str, name: str | None) -> dict[Any, list[Record]]:
    found: dict[Any, list[Record]] = defaultdict(list)
    for row in rows:
        if row.type == type and (name is None or row.values.get(name) is not None):
            found[row.ends if name is None else row.values[name]].append(row)
    return found


def node_keys(row: Record) -> list[tuple[str, str]]:
    return list(zip(ENDS[row.type], row.ends, strict=True))


def stored_rows(graph: Graph) -> Rows:
    rows = {}
    for line in b"".join(graph.export()).splitlines():
        value = json.loads(line)
        value["data"].pop(
            "id" if "slug" in value["data"] or value.get("edge") == "Rates" else "", 0
        )
        row = Record.of(0, value)
        assert row is not None
        rows[row.entity] = row
    return rows


# --- inputs ---------------------------------------------------------------------------------------

SLUGS = st.sampled_from(["p0", "p1", "p2", "p3", "p4"])
NOTES = st.sampled_from(["n0", "n1", "n2", "n3"])
MAILS = st.sampled_from([None, "m0", "m1", "m2", "m3", "m4"])
MARKS = st.sampled_from([None, "a", "b", "c", "d"])


def people(**more: Any) -> Any:
    return st.fixed_dictionaries(
        {"slug": SLUGS},
        optional={"name": st.sampled_from(["Ada", "Eve", None]), "age": AGES, "email": MAILS},
    ).map(lambda data: node("Person", **{"name": "Ada", **data}))


AGES = st.sampled_from([None, 0, 7, 150, 151, -1, "old"])
LACKING = st.fixed_dictionaries(
    {"slug": SLUGS}, optional={"age": st.sampled_from([1, 2]), "email": MAILS}
).map(lambda data: node("Person", **data))
THINGS = st.fixed_dictionaries(
    {"id": NOTES}, optional={"text": st.sampled_from(["x", "first"]), "mark": MARKS}
).map(lambda data: node("Note", **data))
KNOWS = st.builds(
    lambda source, target, id, since: edge("Knows", source, target, id=id, since=since),
    *(SLUGS, SLUGS, st.sampled_from(["k0", "k1", "k2", "k3"]), st.sampled_from([None, 1, 2])),
)
LIKES = st.builds(
    lambda source, target, id: edge("Likes", source, target, id=id),
    *(SLUGS, NOTES, st.sampled_from(["l0", "l1", "l2", "l3", "l4"])),
)
RATES = st.builds(
    lambda source, target, data: edge("Rates", source, target, **data),
    SLUGS,
    NOTES,
    st.fixed_dictionaries(
        {}, optional={"stars": st.just(1), "code": st.sampled_from(["c0", "c1"])}
    ),
)
WRONG = st.sampled_from(["{", node("Persn", slug="p9"), 7, {"type": "Person"}])
INPUTS = st.lists(st.one_of(people(), LACKING, THINGS, KNOWS, LIKES, RATES, WRONG), max_size=16)


def is_bad_json(value: Any) -> bool:
    return isinstance(value, str)


def text_of(records: list[Any]) -> str:
    return "".join(f"{each if is_bad_json(each) else json.dumps(each)}\n" for each in records)
