"""The questions every engine is asked, in each engine's own language.

A question may be put in several forms; before anything is measured, each engine is tried with all
of its forms and keeps the one it answers fastest. That is how peers get their best shot: Kuzu, for
one, is up to ten times faster when two nodes are told apart by `id` instead of by a property, and
which of its two recursive forms wins depends on the graph.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from bench.judges import Judge, Parameters, Recall, SameRows, TopScores
from bench.social import CLUSTERS, DIMENSIONS, SPREAD, SocialGraph

STARTS = 1_000
OLD = 54
"""Half of the persons are older."""
ADULT = 25


@dataclass(frozen=True)
class Chooser:
    """Draws parameters from a graph, the same ones in every run."""

    social: SocialGraph
    count: int
    random: np.random.Generator = field(default_factory=lambda: np.random.default_rng(11))

    def person(self, column: str) -> str:
        """A property of some person."""
        row = int(self.random.integers(self.social.size.persons))
        return str(self.social.persons[column][row].as_py())

    def people(self, column: str) -> list[Parameters]:
        """A property of one person for each time the question is asked."""
        return [{column: self.person(column)} for _ in range(self.count)]

    def starts(self) -> list[Parameters]:
        """Many keys for each time the question is asked."""
        persons = self.social.size.persons
        keys = self.social.keys
        chosen = [
            self.random.choice(persons, min(STARTS, persons // 2), replace=False)
            for _ in range(self.count)
        ]
        return [{"keys": keys.take(rows).to_pylist()} for rows in chosen]

    def nothing(self) -> list[Parameters]:
        """A question without parameters is asked a few times."""
        return [{} for _ in range(min(self.count, 5))]

    def vectors(self) -> list[Parameters]:
        """Points that lie like those of the graph."""
        centres = self.social.centres[self.random.integers(0, CLUSTERS, self.count)]
        noise = self.random.standard_normal(centres.shape, dtype=np.float32)
        return [{"q": q.tolist(), "age": OLD} for q in centres + np.float32(SPREAD) * noise]

    def words(self) -> list[Parameters]:
        """Two words of some bio, rare and frequent ones alike."""
        bios = [self.person("bio").split() for _ in range(self.count)]
        picks = [self.random.choice(bio, 2, replace=False) for bio in bios]
        return [{"q": " ".join(map(str, pick)), "age": OLD} for pick in picks]


@dataclass(frozen=True)
class Wording:
    """What is asked, in the language of each engine."""

    name: str
    says: str
    gq: str
    cypher: Sequence[str]
    """Several texts are forms of the same question; none says that the engine cannot answer it."""
    sql: Sequence[str]


@dataclass(frozen=True)
class Question(Wording):
    """One class of queries."""

    times: float
    """How many times faster than Kuzu we want to be."""
    ask: Callable[[Chooser], list[Parameters]]
    judge: Judge


POINT = Question(
    "point",
    "three properties of one person, by key",
    "query q($key: String) {"
    " match { $p: Person { key: $key } }"
    " return { $p.name as name, $p.age as age, $p.city as city } }",
    ["MATCH (p:Person {key: $key}) RETURN p.name, p.age, p.city"],
    ["SELECT name, age, city FROM person WHERE key = $key"],
    2,
    lambda chooser: chooser.people("key"),
    SameRows(),
)

ONE_HOP = Question(
    "1-hop",
    "whom a person knows, with names",
    "query q($key: String) {"
    " match { $p: Person { key: $key }  $p knows $f }"
    " return { $f.key as key, $f.name as name } }",
    ["MATCH (p:Person {key: $key})-[:Knows]->(f:Person) RETURN f.key, f.name"],
    [
        (
            "SELECT f.key, f.name FROM person p JOIN knows k ON k.src = p.row"
            " JOIN person f ON f.row = k.dst WHERE p.key = $key"
        ),
    ],
    5,
    lambda chooser: chooser.people("key"),
    SameRows(),
)


def _reached(hops: int, start: str = "key = $key") -> str:
    """Everybody within some hops of the persons that fit, in pairs: `start` and `row`."""
    levels = [f"h0 AS (SELECT row AS start, row FROM person WHERE {start})"]
    levels += [
        f"h{n} AS (SELECT DISTINCT h.start, k.dst AS row FROM h{n - 1} h JOIN knows k"
        " ON k.src = h.row)"
        for n in range(1, hops + 1)
    ]
    union = " UNION ".join(f"SELECT start, row FROM h{n}" for n in range(1, hops + 1))
    return f"WITH {', '.join(levels)}, reached AS (SELECT * FROM ({union}) WHERE start <> row)"


def _within(hops: int) -> list[str]:
    """The forms of a recursive pattern from one key that Kuzu may prefer; each node once."""
    anchor, apart = "(p:Person {key: $key})", "id(f) <> id(p)"
    return [
        (
            f"MATCH {anchor}-[:Knows* SHORTEST 1..{hops}]->(f:Person) WHERE {apart}"
            " RETURN f.key, f.name"
        ),
        (
            f"MATCH {anchor}-[:Knows* SHORTEST 1..{hops}]->(f:Person) WHERE {apart}"
            " WITH f RETURN f.key, f.name"
        ),
        (
            f"MATCH {anchor}-[:Knows*1..{hops}]->(f:Person) WHERE {apart}"
            " WITH DISTINCT f RETURN f.key, f.name"
        ),
    ]


TWO_HOPS = Question(
    "2-hop",
    "everybody within two hops, once, with names",
    "query q($key: String) {"
    " match { $p: Person { key: $key }  $p knows{1,2} $f }"
    " return { $f.key as key, $f.name as name } }",
    _within(2),
    [f"{_reached(2)} SELECT f.key, f.name FROM reached JOIN person f USING (row)"],
    20,
    lambda chooser: chooser.people("key"),
    SameRows(),
)

THREE_HOPS = Question(
    "3-hop",
    "everybody within three hops, once, with names",
    TWO_HOPS.gq.replace("{1,2}", "{1,3}"),
    _within(3),
    [f"{_reached(3)} SELECT f.key, f.name FROM reached JOIN person f USING (row)"],
    20,
    lambda chooser: chooser.people("key"),
    SameRows(),
)

THREE_HOPS_COUNT = Question(
    "3-hop count",
    "how many are within three hops",
    "query q($key: String) {"
    " match { $p: Person { key: $key }  $p knows{1,3} $f }"
    " return { count($f) as n } }",
    [
        (
            "MATCH (p:Person {key: $key})-[:Knows* SHORTEST 1..3]->(f:Person) WHERE id(f) <> id(p)"
            " RETURN count(*)"
        ),
        (
            "MATCH (p:Person {key: $key})-[:Knows*1..3]->(f:Person) WHERE id(f) <> id(p)"
            " RETURN count(DISTINCT f)"
        ),
    ],
    [f"{_reached(3)} SELECT count(*) FROM reached"],
    20,
    lambda chooser: chooser.people("key"),
    SameRows(),
)

_UNBLOCKED = "NOT EXISTS { MATCH (p)-[:Blocks]->(f) }"
_BY_CITY = "RETURN f.city AS city, count(*) AS n ORDER BY n DESC, city LIMIT 10"

COMPOSITE = Question(
    "composite",
    "by name, within three hops, of age, not blocked, the ten most frequent cities",
    "query q($name: String) {"
    f" match {{ $p: Person {{ name: $name }}  $p knows{{1,3}} $f  $f.age > {ADULT}"
    " not { $p blocks $f } }"
    " return { $f.city as city, count($f) as n }"
    " order { n desc, city } limit 10 }",
    [
        (
            "MATCH (p:Person)-[:Knows* SHORTEST 1..3]->(f:Person) WHERE p.name = $name"
            f" AND id(p) <> id(f) AND f.age > {ADULT} AND {_UNBLOCKED} {_BY_CITY}"
        ),
        (
            "MATCH (p:Person)-[:Knows* SHORTEST 1..3]->(f:Person) WHERE p.name = $name"
            f" AND id(p) <> id(f) AND f.age > {ADULT} WITH p, f WHERE {_UNBLOCKED} {_BY_CITY}"
        ),
        (
            "MATCH (p:Person)-[:Knows*1..3]->(f:Person) WHERE p.name = $name"
            f" AND id(p) <> id(f) AND f.age > {ADULT} AND {_UNBLOCKED}"
            f" WITH DISTINCT p, f {_BY_CITY}"
        ),
    ],
    [
        (
            f"{_reached(3, 'name = $name')} SELECT f.city, count(*) AS n FROM reached r"
            f" JOIN person f USING (row) WHERE f.age > {ADULT} AND NOT EXISTS"
            " (SELECT 1 FROM blocks b WHERE b.src = r.start AND b.dst = r.row)"
            " GROUP BY f.city ORDER BY n DESC, f.city LIMIT 10"
        ),
    ],
    20,
    lambda chooser: chooser.people("name"),
    SameRows(in_order=True),
)

MANY_STARTS = Question(
    "many starts",
    f"for each of {STARTS:,} persons, how many are within two hops",
    "query q($keys: [String]) {"
    " match { $p: Person  $p.key in $keys  $p knows{1,2} $f }"
    " return { $p.key as key, count($f) as n } }",
    [
        (
            "MATCH (p:Person)-[:Knows* SHORTEST 1..2]->(f:Person) WHERE p.key IN $keys"
            " AND id(p) <> id(f) RETURN p.key, count(*)"
        ),
        (
            "MATCH (p:Person)-[:Knows*1..2]->(f:Person) WHERE p.key IN $keys"
            " AND id(p) <> id(f) RETURN p.key, count(DISTINCT f)"
        ),
    ],
    [
        (
            f"{_reached(2, 'key IN (SELECT unnest($keys))')} SELECT p.key, count(*) FROM reached r"
            " JOIN person p ON p.row = r.start GROUP BY p.key"
        ),
    ],
    50,
    lambda chooser: chooser.starts(),
    SameRows(),
)

JOIN_GROUP = Question(
    "join and group",
    "over all acquaintances, the ten best known cities and the mean age of who knows them",
    "query q() {"
    " match { $p: Person  $p knows $f }"
    " return { $f.city as city, count($p) as n, avg($p.age) as age }"
    " order { n desc, city } limit 10 }",
    [
        (
            "MATCH (p:Person)-[:Knows]->(f:Person)"
            " RETURN f.city AS city, count(*) AS n, avg(p.age) AS age"
            " ORDER BY n DESC, city LIMIT 10"
        ),
    ],
    [
        (
            "SELECT f.city, count(*) AS n, avg(p.age) FROM knows k JOIN person p ON p.row = k.src"
            " JOIN person f ON f.row = k.dst GROUP BY f.city ORDER BY n DESC, f.city LIMIT 10"
        ),
    ],
    8,
    lambda chooser: chooser.nothing(),
    SameRows(in_order=True),
)

ANTI_JOIN = Question(
    "anti-join",
    "how many acquaintances are not blocked",
    "query q() {"
    " match { $p: Person  $p knows $f  not { $p blocks $f } }"
    " return { count($f) as n } }",
    [f"MATCH (p:Person)-[:Knows]->(f:Person) WHERE {_UNBLOCKED} RETURN count(*)"],
    [
        "SELECT count(*) FROM knows k ANTI JOIN blocks b ON b.src = k.src AND b.dst = k.dst",
    ],
    8,
    lambda chooser: chooser.nothing(),
    SameRows(),
)

VECTOR = Question(
    "vector",
    "the ten nearest vectors among the older half",
    f"query q($q: Vector({DIMENSIONS}), $age: I32) {{"
    " match { $p: Person  $p.age > $age }"
    " return { $p.key as key } order { nearest($p.vec, $q) } limit 10 }",
    [
        (
            f"MATCH (p:Person) WHERE p.age > $age RETURN p.key,"
            f" array_distance(p.vec, CAST($q AS FLOAT[{DIMENSIONS}])) AS d ORDER BY d LIMIT 10"
        ),
        *(
            # The filtered part of the graph was projected beforehand.
            f"CALL QUERY_VECTOR_INDEX('older', 'vec_hnsw', $q, 10, efs := {efs})"
            " RETURN node.key, distance ORDER BY distance"
            for efs in (100, 200, 400, 800)
        ),
    ],
    [
        (
            f"SELECT key FROM person WHERE age > $age ORDER BY"
            f" array_distance(vec, $q::FLOAT[{DIMENSIONS}]) LIMIT 10"
        ),
    ],
    3,
    lambda chooser: chooser.vectors(),
    Recall(0.95),
)

TEXT = Question(
    "text",
    "the ten best bios with any of two words among the older half",
    "query q($q: String, $age: I32) {"
    " match { $p: Person  $p.age > $age }"
    " return { $p.key as key } order { bm25($p.bio, $q) desc } limit 10 }",
    [
        (
            "CALL QUERY_FTS_INDEX('Person', 'bio_fts', $q) WHERE node.age > $age"
            " RETURN node.key, score ORDER BY score DESC LIMIT 10"
        ),
        (
            "CALL QUERY_FTS_INDEX('Person', 'bio_fts', $q) WITH node, score WHERE node.age > $age"
            " RETURN node.key, score ORDER BY score DESC LIMIT 10"
        ),
    ],
    [],
    3,
    lambda chooser: chooser.words(),
    TopScores(),
)

QUESTIONS: Mapping[str, Question] = {
    question.name: question
    for question in (
        POINT,
        ONE_HOP,
        TWO_HOPS,
        THREE_HOPS,
        THREE_HOPS_COUNT,
        COMPOSITE,
        MANY_STARTS,
        JOIN_GROUP,
        ANTI_JOIN,
        VECTOR,
        TEXT,
    )
}
