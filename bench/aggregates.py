"""Aggregates over many paths and over properties of edges, beside Kuzu and DuckDB.

The graph has the shape of a public benchmark of graph databases: persons who follow each other, 24
each on average, and live in cities. Answers are compared before anything is measured.
"""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb
import kuzu
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bench import child, social
from bench.bulk_write import write
from bench.contest import Effort, Outcome, contests
from bench.figure import Figure, Target, Versus
from bench.judges import SameRows
from bench.peer_duckdb import DuckDb
from bench.peer_kuzu import KuzuConnection, kuzu_rows
from bench.peer_omnigraph import Omnigraph
from bench.peers import Peer
from bench.progress import note
from bench.query_processes import first_of_process
from bench.questions import Chooser, Question
from bench.scale import Scale
from bench.social import Size, SocialGraph, edge_ids, generate
from bench.social_files import CACHE, SocialFiles
from omnigraph.commit.plan import TableChange
from omnigraph.graph import init, open_graph

SEED = social.SEED
EFFORT = {
    Scale.SMALL: Effort(parameters=3, rounds=5, seconds_max=8),
    Scale.FULL: Effort(parameters=3, rounds=7, seconds_max=12),
    Scale.LARGE: Effort(parameters=5, rounds=7, seconds_max=30),
}
SIZES = {
    Scale.SMALL: Size("followers-20k", 20_000, 480_000),
    Scale.FULL: Size("followers-100k", 100_000, 2_400_000),
    Scale.LARGE: Size("followers-400k", 400_000, 9_600_000),
}
FIRST_READ = Target(2, "at most")
COMMITS = 5
EDGE_QUESTIONS = ("edge average", "edge filter", "2-hop, edge filter")
"""Those that are measured as the first of a process, too."""
INTERESTS = 40
MEMORY_SIZES = {
    Scale.SMALL: Size("edges-1m", 40_000, 1_000_000),
    Scale.FULL: Size("edges-10m", 400_000, 10_000_000),
    Scale.LARGE: Size("edges-10m", 400_000, 10_000_000),
}
MEMORY_EDGES = 10_000_000
MEMORY_MB = Target(900, "at most")
"""For so many edges with a property."""

SCHEMA = """
node Person { key: String @key  name: String  age: I32  gender: String }
node City { name: String @key }
node State { name: String @key }
node Country { name: String @key }
node Interest { name: String @key }
edge Follows: Person -> Person { weight: F64  since: I32 }
edge LivesIn: Person -> City @card(0..1)
edge InState: City -> State @card(0..1)
edge InCountry: State -> Country @card(0..1)
edge HasInterest: Person -> Interest
"""


# --- the graph ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Followers:
    """The rows of the graph: persons and pairs of a social graph, with properties of the pairs."""

    files: SocialFiles

    @property
    def social(self) -> SocialGraph:
        """Where persons and pairs come from."""
        return self.files.social

    @property
    def persons(self) -> pa.Table:
        """Persons, with a dense number in `row`."""
        numbers = pa.array(np.arange(self.social.size.persons, dtype=np.int32))
        genders = np.random.default_rng([SEED, 1]).choice(["female", "male"], len(numbers))
        found = self.social.persons.select(["key", "name", "age"])
        return found.append_column("gender", pa.array(genders)).append_column("row", numbers)

    @property
    def cities(self) -> pa.Table:
        """The cities persons live in, three in a state, and five of these in a country."""
        names = pc.unique(self.social.persons["city"])
        places = np.arange(len(names))
        states = pa.array([f"state {place // 3}" for place in places])
        countries = pa.array([f"country {place // 15}" for place in places])
        return pa.table({"name": names, "state": states, "country": countries})

    @property
    def states(self) -> pa.Table:
        """The states cities lie in."""
        return self.cities.select(["state", "country"]).group_by(["state", "country"]).aggregate([])

    @property
    def countries(self) -> pa.Table:
        """The countries states lie in."""
        return pa.table({"name": pc.unique(self.cities["country"])})

    @property
    def interests(self) -> pa.Table:
        """What persons are interested in."""
        return pa.table({"name": pa.array([f"interest {number}" for number in range(INTERESTS)])})

    @property
    def has_interest(self) -> pa.Table:
        """Who is interested in what: two or three things each."""
        random = np.random.default_rng([SEED, 2])
        persons = self.social.size.persons
        first = random.integers(0, INTERESTS, persons)
        rows = [np.arange(persons), np.arange(persons), np.arange(0, persons, 2)]
        chosen = [first, (first + 7) % INTERESTS, ((first + 19) % INTERESTS)[::2]]
        return pa.table(
            {
                "src": self.social.persons["key"].take(pa.array(np.concatenate(rows))),
                "dst": self.interests["name"].take(pa.array(np.concatenate(chosen))),
            }
        )

    @property
    def follows(self) -> pa.Table:
        """Who follows whom, how much and since when."""
        random = np.random.default_rng([SEED, self.social.size.knows])
        count = self.social.size.knows
        edges = self.social.edges(self.social.knows)
        edges = edges.append_column("weight", pa.array(random.integers(0, 1_000, count) / 1_000))
        years = random.integers(2000, 2025, count).astype(np.int32)
        return edges.append_column("since", pa.array(years))

    @property
    def lives_in(self) -> pa.Table:
        """Who lives where."""
        return pa.table({"src": self.social.persons["key"], "dst": self.social.persons["city"]})

    def parquet(self, name: str) -> Path:
        """One of the tables as a file."""
        return self.files.made(
            f"{name}-places.parquet", lambda path: pq.write_table(getattr(self, name), path)
        )

    @property
    def graph(self) -> Path:
        """The Omnigraph graph."""
        return self.files.made("followers-places.omni", self._build_graph)

    def _build_graph(self, path: Path) -> None:
        graph = init(path, SCHEMA)
        follows = self.follows
        persons = self.persons.drop_columns(["row"]).add_column(0, "id", self.social.keys)
        ids = edge_ids(follows.num_rows)
        lives = self.lives_in
        lives = lives.add_column(0, "id", edge_ids(lives.num_rows, follows.num_rows))
        cities, states = self.cities, self.states
        made = follows.num_rows + lives.num_rows

        def nodes(names: pa.ChunkedArray | pa.Array) -> pa.Table:
            return pa.table({"id": names, "name": names})

        def edges(src: pa.ChunkedArray, dst: pa.ChunkedArray) -> pa.Table:
            nonlocal made
            ids = edge_ids(len(src), made)
            made += len(src)
            return pa.table({"id": ids, "src": src, "dst": dst})

        liked = self.has_interest
        write(
            path,
            [
                TableChange("node:Person", "append", persons),
                TableChange("node:City", "append", nodes(cities["name"])),
                TableChange("node:State", "append", nodes(states["state"])),
                TableChange("node:Country", "append", nodes(self.countries["name"])),
                TableChange("node:Interest", "append", nodes(self.interests["name"])),
                TableChange("edge:InState", "append", edges(cities["name"], cities["state"])),
                TableChange("edge:InCountry", "append", edges(states["state"], states["country"])),
                TableChange("edge:HasInterest", "append", edges(liked["src"], liked["dst"])),
                TableChange("edge:Follows", "append", follows.add_column(0, "id", ids)),
                TableChange("edge:LivesIn", "append", lives),
            ],
        )
        graph.optimize()

    @property
    def duckdb(self) -> Path:
        """The DuckDB database: dense integer keys, edges sorted by source."""
        return self.files.made("followers-places.duckdb", self._build_duckdb)

    def _build_duckdb(self, path: Path) -> None:
        persons, cities = self.parquet("persons"), self.parquet("cities")
        follows, lives = self.parquet("follows"), self.parquet("lives_in")
        liked = self.parquet("has_interest")
        with duckdb.connect(str(path)) as connection:
            connection.execute(f"CREATE TABLE person AS SELECT * FROM '{persons}' ORDER BY row")
            connection.execute(
                "CREATE TABLE city AS"
                " SELECT name, state, country, (row_number() OVER () - 1)::INTEGER AS row"
                f" FROM '{cities}'"
            )
            connection.execute(
                "CREATE TABLE follows AS SELECT s.row AS src, d.row AS dst, e.weight, e.since"
                f" FROM '{follows}' e JOIN person s ON s.key = e.src"
                " JOIN person d ON d.key = e.dst ORDER BY 1, 2"
            )
            connection.execute(
                "CREATE TABLE lives_in AS SELECT p.row AS src, c.row AS dst"
                f" FROM '{lives}' l JOIN person p ON p.key = l.src"
                " JOIN city c ON c.name = l.dst ORDER BY 1"
            )
            connection.execute(
                "CREATE TABLE liked AS SELECT p.row AS src, l.dst AS interest"
                f" FROM '{liked}' l JOIN person p ON p.key = l.src ORDER BY 1"
            )

    @property
    def kuzu(self) -> Path:
        """The Kuzu database."""
        return self.files.made("followers-places.kuzu", self._build_kuzu)

    def _build_kuzu(self, path: Path) -> None:
        statements = [
            (
                "CREATE NODE TABLE Person"
                "(key STRING PRIMARY KEY, name STRING, age INT32, gender STRING)"
            ),
            *(
                f"CREATE NODE TABLE {name}(name STRING PRIMARY KEY)"
                for name in ("City", "State", "Country", "Interest")
            ),
            "CREATE REL TABLE Follows(FROM Person TO Person, weight DOUBLE, since INT32)",
            "CREATE REL TABLE LivesIn(FROM Person TO City)",
            "CREATE REL TABLE InState(FROM City TO State)",
            "CREATE REL TABLE InCountry(FROM State TO Country)",
            "CREATE REL TABLE HasInterest(FROM Person TO Interest)",
            (
                f"COPY Person FROM (LOAD FROM '{self.parquet('persons')}'"
                " RETURN key, name, age, gender)"
            ),
            f"COPY City FROM (LOAD FROM '{self.parquet('cities')}' RETURN name)",
            f"COPY State FROM (LOAD FROM '{self.parquet('states')}' RETURN state)",
            f"COPY Country FROM '{self.parquet('countries')}'",
            f"COPY Interest FROM '{self.parquet('interests')}'",
            f"COPY InState FROM (LOAD FROM '{self.parquet('cities')}' RETURN name, state)",
            f"COPY InCountry FROM '{self.parquet('states')}'",
            f"COPY HasInterest FROM '{self.parquet('has_interest')}'",
            f"COPY Follows FROM '{self.parquet('follows')}'",
            f"COPY LivesIn FROM '{self.parquet('lives_in')}'",
        ]
        with kuzu.Database(str(path)) as database, kuzu.Connection(database) as connection:
            for statement in statements:
                kuzu_rows(connection, statement)


@dataclass(frozen=True)
class WeightedEdges:
    """Edges with one float, between nodes with nothing but a key: what memory is measured with."""

    SCHEMA = """
node Person { key: String @key }
edge Follows: Person -> Person { weight: F64 }
"""
    QUESTIONS = (
        (
            "match { $a $e:follows $b } return { $a.key as key, avg($e.weight) as w }"
            " order { w desc, key } limit 10"
        ),
        (
            "match { $a $e:follows $b } return { $b.key as key, avg($e.weight) as w }"
            " order { w desc, key } limit 10"
        ),
        (
            "match { $a $e:follows $b  $b $f:follows $c  $e.weight > 0.9  $f.weight < 0.5 }"
            " return { count(*) as n }"
        ),
    )
    """The property of all edges at either end, and along paths of two hops."""

    files: SocialFiles

    @property
    def graph(self) -> Path:
        """As it was loaded."""
        return self.files.made("weighted.omni", self._build)

    @property
    def optimized(self) -> Path:
        """With saved adjacency."""
        return self.files.made("weighted-optimized.omni", self._optimize)

    def _build(self, path: Path) -> None:
        init(path, self.SCHEMA)
        social = self.files.social
        keys, count = social.keys, social.size.knows
        weights = np.random.default_rng([SEED, count]).integers(0, 1_000, count) / 1_000
        edges = social.edges(social.knows).append_column("weight", pa.array(weights))
        write(
            path,
            [
                TableChange("node:Person", "append", pa.table({"id": keys, "key": keys})),
                TableChange("edge:Follows", "append", edges.add_column(0, "id", edge_ids(count))),
            ],
        )

    def _optimize(self, path: Path) -> None:
        shutil.copytree(self.graph, path)
        open_graph(path).optimize()


# --- the questions --------------------------------------------------------------------------------


def _question(
    name: str, says: str, *, gq: str, cypher: str, sql: str, times: float = 1, ordered: bool = False
) -> Question:
    text = f"query q() {{ {gq} }}"
    return Question(name, says, text, [cypher], [sql], times, Chooser.nothing, SameRows(ordered))


_FOLLOWS = "MATCH (a:Person)-[:Follows]->(b:Person)"
_TWO_HOPS = f"{_FOLLOWS}-[:Follows]->(c:Person)"
_SQL_TWO = "FROM follows e JOIN follows f ON f.src = e.dst"

QUESTIONS: Mapping[str, Question] = {
    question.name: question
    for question in (
        _question(
            "2-hop paths",
            "how many paths of two hops there are",
            gq="match { $a follows $b  $b follows $c } return { count(*) as n }",
            cypher=f"{_TWO_HOPS} RETURN count(*)",
            sql=f"SELECT count(*) {_SQL_TWO}",
            times=10,
        ),
        _question(
            "2-hop paths, filtered",
            "paths of two hops by the ages of their middle and end",
            gq="match { $a follows $b  $b.age < 50  $b follows $c  $c.age > 25 }"
            " return { count(*) as n }",
            cypher=f"{_TWO_HOPS} WHERE b.age < 50 AND c.age > 25 RETURN count(*)",
            sql=f"SELECT count(*) {_SQL_TWO} JOIN person b ON b.row = e.dst"
            " JOIN person c ON c.row = f.dst WHERE b.age < 50 AND c.age > 25",
            times=10,
        ),
        _question(
            "3-hop paths",
            "how many paths of three hops there are: too many to make their rows",
            gq="match { $a follows $b  $b follows $c  $c follows $d } return { count(*) as n }",
            # Kuzu would enumerate them, for minutes: it gets the sum over paths of one hop.
            cypher="MATCH (a:Person)-[:Follows]->(b:Person) WITH b, count(*) AS i"
            " MATCH (b)-[:Follows]->(c:Person) WITH c, sum(i) AS i"
            " MATCH (c)-[:Follows]->(d:Person) WITH c, i, count(*) AS o"
            " RETURN CAST(sum(i * o) AS INT64)",
            sql="WITH i AS (SELECT dst, count(*) AS n FROM follows GROUP BY dst),"
            " j AS (SELECT e.dst, sum(i.n) AS n FROM follows e JOIN i ON i.dst = e.src GROUP BY 1)"
            " SELECT sum(j.n)::BIGINT FROM follows f JOIN j ON j.dst = f.src",
        ),
        _question(
            "most followed",
            "the three persons with most followers",
            gq="match { $a follows $b } return { $b.key as key, count($a) as n }"
            " order { n desc, key } limit 3",
            cypher=f"{_FOLLOWS} RETURN b.key AS key, count(*) AS n ORDER BY n DESC, key LIMIT 3",
            sql="SELECT p.key, count(*) AS n FROM follows e JOIN person p ON p.row = e.dst"
            " GROUP BY p.key ORDER BY n DESC, p.key LIMIT 3",
            ordered=True,
        ),
        _question(
            "city of the most followed",
            "the person with most followers, and where they live",
            gq="match { $a follows $b } with { $b, count($a) as n } order { n desc } limit 1"
            " match { $b livesIn $c } return { $b.key as key, $c.name as city, n }",
            cypher=f"{_FOLLOWS} WITH b, count(*) AS n ORDER BY n DESC, b.key LIMIT 1"
            " MATCH (b)-[:LivesIn]->(c:City) RETURN b.key, c.name, n",
            sql="SELECT t.key, c.name, t.n FROM (SELECT p.row, p.key, count(*) AS n FROM follows e"
            " JOIN person p ON p.row = e.dst GROUP BY 1, 2 ORDER BY n DESC, p.key LIMIT 1) t"
            " JOIN lives_in l ON l.src = t.row JOIN city c ON c.row = l.dst",
            ordered=True,
        ),
        _question(
            "youngest cities",
            "the five cities of a country whose people are youngest on average",
            gq='match { $k: Country { name: "country 0" }  $s inCountry $k  $c inState $s'
            "  $p livesIn $c } return { $c.name as city, avg($p.age) as age }"
            " order { age, city } limit 5",
            cypher="MATCH (p:Person)-[:LivesIn]->(c:City)-[:InState]->(:State)-[:InCountry]->"
            "(k:Country) WHERE k.name = 'country 0'"
            " RETURN c.name AS city, avg(p.age) AS age ORDER BY age, city LIMIT 5",
            sql="SELECT c.name, avg(p.age) AS age FROM person p JOIN lives_in l ON l.src = p.row"
            " JOIN city c ON c.row = l.dst WHERE c.country = 'country 0'"
            " GROUP BY c.name ORDER BY age, c.name LIMIT 5",
            ordered=True,
        ),
        _question(
            "ages by country",
            "how many people of an age live in each country, the three with most",
            gq="match { $p: Person  $p.age >= 30  $p.age <= 40  $p livesIn $c  $c inState $s"
            "  $s inCountry $k } return { $k.name as country, count($p) as n }"
            " order { n desc, country } limit 3",
            cypher="MATCH (p:Person)-[:LivesIn]->(:City)-[:InState]->(:State)-[:InCountry]->"
            "(k:Country) WHERE p.age >= 30 AND p.age <= 40"
            " RETURN k.name AS country, count(*) AS n ORDER BY n DESC, country LIMIT 3",
            sql="SELECT c.country, count(*) AS n FROM person p JOIN lives_in l ON l.src = p.row"
            " JOIN city c ON c.row = l.dst WHERE p.age BETWEEN 30 AND 40"
            " GROUP BY c.country ORDER BY n DESC, c.country LIMIT 3",
            ordered=True,
        ),
        _question(
            "men with an interest",
            "how many men of the state of some cities have an interest",
            gq='match { $i: Interest { name: "interest 5" }  $p hasInterest $i'
            '  $p.gender = "male"  $p livesIn $c  $c inState $s  $s.name = "state 0" }'
            " return { count($p) as n }",
            cypher="MATCH (p:Person)-[:HasInterest]->(i:Interest),"
            " (p)-[:LivesIn]->(:City)-[:InState]->(s:State) WHERE i.name = 'interest 5'"
            " AND p.gender = 'male' AND s.name = 'state 0' RETURN count(*)",
            sql="SELECT count(*) FROM liked i JOIN person p ON p.row = i.src"
            " JOIN lives_in l ON l.src = p.row JOIN city c ON c.row = l.dst"
            " WHERE i.interest = 'interest 5' AND p.gender = 'male' AND c.state = 'state 0'",
        ),
        _question(
            "women with an interest by city",
            "how many women of each city have an interest, the five with most",
            gq='match { $i: Interest { name: "interest 7" }  $p hasInterest $i'
            '  $p.gender = "female"  $p livesIn $c }'
            " return { $c.name as city, count($p) as n } order { n desc, city } limit 5",
            cypher="MATCH (p:Person)-[:HasInterest]->(i:Interest), (p)-[:LivesIn]->(c:City)"
            " WHERE i.name = 'interest 7' AND p.gender = 'female'"
            " RETURN c.name AS city, count(*) AS n ORDER BY n DESC, city LIMIT 5",
            sql="SELECT c.name, count(*) AS n FROM liked i JOIN person p ON p.row = i.src"
            " JOIN lives_in l ON l.src = p.row JOIN city c ON c.row = l.dst"
            " WHERE i.interest = 'interest 7' AND p.gender = 'female'"
            " GROUP BY c.name ORDER BY n DESC, c.name LIMIT 5",
            ordered=True,
        ),
        _question(
            "young with an interest by state",
            "the state with most young people of an interest",
            gq='match { $i: Interest { name: "interest 9" }  $p hasInterest $i  $p.age >= 23'
            "  $p.age <= 30  $p livesIn $c  $c inState $s }"
            " return { $s.name as state, count($p) as n } order { n desc, state } limit 1",
            cypher="MATCH (p:Person)-[:HasInterest]->(i:Interest),"
            " (p)-[:LivesIn]->(:City)-[:InState]->(s:State) WHERE i.name = 'interest 9'"
            " AND p.age >= 23 AND p.age <= 30"
            " RETURN s.name AS state, count(*) AS n ORDER BY n DESC, state LIMIT 1",
            sql="SELECT c.state, count(*) AS n FROM liked i JOIN person p ON p.row = i.src"
            " JOIN lives_in l ON l.src = p.row JOIN city c ON c.row = l.dst"
            " WHERE i.interest = 'interest 9' AND p.age BETWEEN 23 AND 30"
            " GROUP BY c.state ORDER BY n DESC, c.state LIMIT 1",
            ordered=True,
        ),
        _question(
            "followers by city",
            "followers of the people of each city and their mean age, the ten with most",
            gq="match { $a follows $b  $b livesIn $c }"
            " return { $c.name as city, count(*) as n, avg($a.age) as age }"
            " order { n desc, city } limit 10",
            cypher="MATCH (a:Person)-[:Follows]->(b:Person)-[:LivesIn]->(c:City)"
            " RETURN c.name AS city, count(*) AS n, avg(a.age) ORDER BY n DESC, city LIMIT 10",
            sql="SELECT c.name, count(*) AS n, avg(a.age) FROM follows e"
            " JOIN person a ON a.row = e.src JOIN lives_in l ON l.src = e.dst"
            " JOIN city c ON c.row = l.dst GROUP BY c.name ORDER BY n DESC, c.name LIMIT 10",
            ordered=True,
        ),
        _question(
            "edge average",
            "the mean weight of what each person follows, the ten highest of them",
            gq="match { $a $e:follows $b } return { $a.key as key, avg($e.weight) as w }"
            " order { w desc, key } limit 10",
            cypher="MATCH (a:Person)-[e:Follows]->(b:Person)"
            " RETURN a.key AS key, avg(e.weight) AS w ORDER BY w DESC, key LIMIT 10",
            sql="SELECT p.key, avg(e.weight) AS w FROM follows e JOIN person p ON p.row = e.src"
            " GROUP BY p.key ORDER BY w DESC, p.key LIMIT 10",
            times=2,
            ordered=True,
        ),
        _question(
            "edge filter",
            "how many edges are heavier than nine tenths",
            gq="match { $a $e:follows $b  $e.weight > 0.9 } return { count(*) as n }",
            cypher="MATCH (a:Person)-[e:Follows]->(b:Person) WHERE e.weight > 0.9 RETURN count(*)",
            sql="SELECT count(*) FROM follows WHERE weight > 0.9",
            times=2,
        ),
        _question(
            "2-hop, edge filter",
            "paths of two hops whose first edge is heavy and whose second is old",
            gq="match { $a $e:follows $b  $b $f:follows $c  $e.weight > 0.9  $f.since < 2005 }"
            " return { count(*) as n }",
            cypher="MATCH (a:Person)-[e:Follows]->(b:Person)-[f:Follows]->(c:Person)"
            " WHERE e.weight > 0.9 AND f.since < 2005 RETURN count(*)",
            sql=f"SELECT count(*) {_SQL_TWO} WHERE e.weight > 0.9 AND f.since < 2005",
            times=2,
        ),
    )
}


# --- the run --------------------------------------------------------------------------------------


def run(scale: Scale) -> Iterator[Figure]:
    """Measure every question, then the first read after a write."""
    followers = Followers(SocialFiles(generate(SIZES[scale]), CACHE))
    note(f"{followers.social.size.persons:,} persons, {followers.social.size.knows:,} edges")
    yield from figures(measure(followers, list(QUESTIONS.values()), EFFORT[scale]))
    yield first_read(followers)
    paths = {Omnigraph.name: followers.graph, KuzuConnection.name: followers.kuzu}
    for name in EDGE_QUESTIONS:
        yield first_of_process(QUESTIONS[name], paths, {})
    yield from memory(WeightedEdges(SocialFiles(generate(MEMORY_SIZES[scale]), CACHE)))


def measure(followers: Followers, questions: Sequence[Question], effort: Effort) -> list[Outcome]:
    """The outcome of every question."""
    peers: list[Peer] = [
        KuzuConnection(followers.kuzu),
        DuckDb(followers.duckdb),
        Omnigraph(followers.graph),
    ]
    try:
        return contests(questions, peers, followers.social, effort)
    finally:
        for peer in peers:
            peer.close()


def figures(outcomes: Sequence[Outcome]) -> Iterator[Figure]:
    """Our time beside that of both peers; the target is for Kuzu."""
    for outcome in outcomes:
        question = outcome.question
        ours = outcome.seconds[Omnigraph.name] * 1e3
        for name in (KuzuConnection.name, DuckDb.name):
            target = Target(question.times, "at least") if name == KuzuConnection.name else None
            peer = Versus(name, outcome.seconds[name] * 1e3, "theirs to ours")
            yield Figure(question.name, ours, "ms", target, question.says, peer)


def memory(weighted: WeightedEdges) -> Iterator[Figure]:
    """The peaks of processes that read a property of all edges in both directions."""
    edges = weighted.files.social.size.knows
    for path, how in ((weighted.graph, "as loaded"), (weighted.optimized, "optimized")):
        texts = [f"query q() {{ {text} }}" for text in WeightedEdges.QUESTIONS]
        answer = child.ask("bench.query_child", "peak", path=str(path), texts=texts)
        yield Figure(
            f"a property of {edges:,} edges, {how}, peak",
            answer["peak_mb"],
            "MB",
            MEMORY_MB if edges >= MEMORY_EDGES else None,
            "the whole process",
        )


def first_read(followers: Followers) -> Figure:
    """The first answer after a commit of one person and one edge, beside a warm one."""
    path = followers.files.directory / "followers-written.omni"
    shutil.rmtree(path, ignore_errors=True)
    shutil.copytree(followers.graph, path)
    graph = open_graph(path)
    questions = [QUESTIONS[name].gq for name in ("2-hop paths, filtered", "edge average")]

    def ask() -> float:
        began = time.perf_counter()
        for text in questions:
            graph.query(text).to_pylist()
        return time.perf_counter() - began

    known = followers.social.keys[0].as_py()
    ask()
    warm: list[float] = []
    first: list[float] = []
    for number in range(COMMITS):
        warm.append(min(ask() for _ in range(3)))
        graph.mutate(
            "query m($new: String, $known: String) {"
            ' insert Person { key: $new, name: "new", age: 30, gender: "female" }'
            " insert Follows { from: $new, to: $known, weight: 0.5, since: 2025 } }",
            {"new": f"new{number}", "known": known},
        )
        first.append(ask())
    shutil.rmtree(path)
    return Figure(
        "first read after a write",
        statistics.median(first) * 1e3,
        "ms",
        FIRST_READ,
        "a filter over two hops and a mean of edges, after a commit of one node and one edge",
        Versus("a warm one", statistics.median(warm) * 1e3),
    )
