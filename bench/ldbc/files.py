"""What is made once of a network and kept: Parquet files, and the databases of all engines.

Each engine gets the layout that suits it. DuckDB has dense integer keys, one table of messages with
the edges that a message has once as columns, and friendships in both directions. Kuzu has one node
table of messages, because it reads one table faster than two under one label.
"""

from __future__ import annotations

from pathlib import Path

import duckdb
import kuzu
import pyarrow as pa
import pyarrow.parquet as pq

from bench.ldbc.generator import Network
from bench.peer_kuzu import kuzu_rows
from bench.social_files import CACHE, KeptFiles
from omnigraph.graph import init

SCHEMA = Path(__file__).parent / "schema.pg"
LAYOUT = 1
"""Raised when the generator or one of the databases changes: older files are then left alone."""


class LdbcFiles(KeptFiles):
    """The files of one network."""

    def __init__(self, network: Network, cache: Path = CACHE) -> None:
        name = f"ldbc-{network.size.name}-seed{network.seed}-v{LAYOUT}"
        super().__init__(cache / name)
        self.network = network

    def parquet(self, name: str) -> Path:
        """The table of one type of node or edge."""
        tables = {**self.network.nodes, **self.network.edges}
        return self.made(f"{name}.parquet", lambda path: pq.write_table(tables[name], path))

    def plain_parquet(self, name: str) -> Path:
        """The same without time zones, which peers would answer in: all times are UTC."""
        tables = {**self.network.nodes, **self.network.edges}
        return self.made(
            f"{name}-plain.parquet", lambda path: pq.write_table(_without_zones(tables[name]), path)
        )

    @property
    def graph(self) -> Path:
        """The Omnigraph graph, indexes included."""
        return self.made("ldbc.omni", self._build_graph)

    def _build_graph(self, path: Path) -> None:
        graph = init(path, SCHEMA)
        network = self.network
        graph.load(
            mode="append",
            nodes={name: str(self.parquet(name)) for name in network.nodes},
            edges={name: str(self.parquet(name)) for name in network.edges},
            engine="local",
        )
        graph.ensure_indices()

    @property
    def duckdb(self) -> Path:
        """The DuckDB database."""
        return self.made("ldbc.duckdb", self._build_duckdb)

    def _build_duckdb(self, path: Path) -> None:
        with duckdb.connect(str(path)) as connection:
            for name in (*self.network.nodes, *self.network.edges):
                connection.execute(
                    f"CREATE VIEW raw_{name} AS SELECT * FROM '{self.plain_parquet(name)}'"
                )
            connection.execute(_DUCKDB)
            for name in (*self.network.nodes, *self.network.edges):
                connection.execute(f"DROP VIEW raw_{name}")

    @property
    def kuzu(self) -> Path:
        """The Kuzu database."""
        return self.made("ldbc.kuzu", self._build_kuzu)

    def _build_kuzu(self, path: Path) -> None:
        with kuzu.Database(str(path)) as database, kuzu.Connection(database) as connection:
            for name, columns in _KUZU_NODES.items():
                kuzu_rows(connection, f"CREATE NODE TABLE {name}({columns}, PRIMARY KEY(no))")
            for name, (ends, columns) in _KUZU_EDGES.items():
                more = f", {columns}" if columns else ""
                kuzu_rows(connection, f"CREATE REL TABLE {name}({ends}{more})")
            for name, columns in _KUZU_NODES.items():
                kinds = ["Post", "Comment"] if name == "Message" else [name]
                for kind in kinds:
                    file = self.plain_parquet(kind)
                    chosen = ", ".join(_kuzu_column(part, kind) for part in columns.split(", "))
                    kuzu_rows(connection, f"COPY {name} FROM (LOAD FROM '{file}' RETURN {chosen})")
            for name, (_, columns) in _KUZU_EDGES.items():
                source, _, kind = name.partition("_")
                file = self.plain_parquet(source)
                names = [part.split()[0] for part in columns.split(", ") if part]
                chosen = ", ".join(["`from`", "`to`", *names])
                where = f" WHERE from_type = '{kind}'" if kind else ""
                kuzu_rows(
                    connection, f"COPY {name} FROM (LOAD FROM '{file}'{where} RETURN {chosen})"
                )


def _without_zones(table: pa.Table) -> pa.Table:
    fields = [
        pa.field(
            field.name, pa.timestamp("us") if pa.types.is_timestamp(field.type) else field.type
        )
        for field in table.schema
    ]
    return table.cast(pa.schema(fields))


_DUCKDB = """
CREATE TABLE country AS SELECT c.no, c.name, p.to AS continent FROM raw_Country c
  JOIN raw_IsPartOf p ON p.from_type = 'Country' AND p.from = c.no ORDER BY 1;
CREATE TABLE city AS SELECT c.no, c.name, p.to AS country FROM raw_City c
  JOIN raw_IsPartOf p ON p.from_type = 'City' AND p.from = c.no ORDER BY 1;
CREATE TABLE university AS SELECT u.no, u.name, l.to AS city FROM raw_University u
  JOIN raw_OrganisationIsLocatedIn l ON l.from_type = 'University' AND l.from = u.no ORDER BY 1;
CREATE TABLE company AS SELECT c.no, c.name, l.to AS country FROM raw_Company c
  JOIN raw_OrganisationIsLocatedIn l ON l.from_type = 'Company' AND l.from = c.no ORDER BY 1;
CREATE TABLE tag_class AS SELECT t.no, t.name, s.to AS parent FROM raw_TagClass t
  LEFT JOIN raw_IsSubclassOf s ON s.from = t.no ORDER BY 1;
CREATE TABLE tag AS SELECT t.no, t.name, h.to AS class FROM raw_Tag t
  JOIN raw_HasType h ON h.from = t.no ORDER BY 1;
CREATE TABLE person AS SELECT p.*, l.to AS city FROM raw_Person p
  JOIN raw_PersonIsLocatedIn l ON l.from = p.no ORDER BY p.no;
CREATE TABLE knows AS SELECT "from" AS a, "to" AS b, creationDate FROM raw_Knows
  UNION ALL SELECT "to", "from", creationDate FROM raw_Knows ORDER BY 1, 2;
CREATE TABLE interest AS SELECT "from" AS person, "to" AS tag FROM raw_HasInterest ORDER BY 1, 2;
CREATE TABLE study AS SELECT "from" AS person, "to" AS university, classYear FROM raw_StudyAt
  ORDER BY 1, 2;
CREATE TABLE work AS SELECT "from" AS person, "to" AS company, workFrom FROM raw_WorkAt
  ORDER BY 1, 2;
CREATE TABLE forum AS SELECT f.*, m.to AS moderator FROM raw_Forum f
  JOIN raw_HasModerator m ON m.from = f.no ORDER BY f.no;
CREATE TABLE member AS SELECT "from" AS forum, "to" AS person, joinDate FROM raw_HasMember
  ORDER BY 2, 1;
CREATE TABLE forum_tag AS SELECT "from" AS forum, "to" AS tag FROM raw_ForumHasTag ORDER BY 1, 2;
CREATE TABLE message AS
  SELECT m.*, c.to AS creator, l.to AS country FROM (
    SELECT p.no, p.creationDate, p.content, p.imageFile, p.length, p.browserUsed, p.locationIP,
      p.language, true AS is_post, o.from AS forum, NULL::BIGINT AS parent
    FROM raw_Post p JOIN raw_ContainerOf o ON o.to = p.no
    UNION ALL
    SELECT c.no, c.creationDate, c.content, c.imageFile, c.length, c.browserUsed, c.locationIP,
      NULL, false, NULL::BIGINT, r.to
    FROM raw_Comment c JOIN raw_ReplyOf r ON r.from = c.no
  ) m JOIN raw_HasCreator c ON c.from = m.no JOIN raw_MessageIsLocatedIn l ON l.from = m.no
  ORDER BY creator, m.creationDate;
CREATE TABLE message_tag AS SELECT "from" AS message, "to" AS tag FROM raw_HasTag ORDER BY 1, 2;
CREATE TABLE likes AS SELECT "from" AS person, "to" AS message, creationDate FROM raw_Likes
  ORDER BY 2, 1;
CREATE UNIQUE INDEX person_no ON person(no);
CREATE UNIQUE INDEX message_no ON message(no);
CREATE INDEX message_parent ON message(parent);
"""

_NAMED = "no INT64, name STRING"
_KUZU_NODES = {
    "Continent": _NAMED,
    "Country": _NAMED,
    "City": _NAMED,
    "University": _NAMED,
    "Company": _NAMED,
    "TagClass": _NAMED,
    "Tag": _NAMED,
    "Person": "no INT64, firstName STRING, lastName STRING, gender STRING, birthday DATE,"
    " creationDate TIMESTAMP, locationIP STRING, browserUsed STRING, email STRING[],"
    " speaks STRING[]",
    "Forum": "no INT64, title STRING, creationDate TIMESTAMP",
    "Message": "no INT64, creationDate TIMESTAMP, content STRING, imageFile STRING, length INT32,"
    " browserUsed STRING, locationIP STRING, language STRING, isPost BOOL",
}
_KUZU_EDGES = {
    "IsPartOf_City": ("FROM City TO Country", ""),
    "IsPartOf_Country": ("FROM Country TO Continent", ""),
    "OrganisationIsLocatedIn_University": ("FROM University TO City", ""),
    "OrganisationIsLocatedIn_Company": ("FROM Company TO Country", ""),
    "IsSubclassOf": ("FROM TagClass TO TagClass", ""),
    "HasType": ("FROM Tag TO TagClass", ""),
    "Knows": ("FROM Person TO Person", "creationDate TIMESTAMP"),
    "HasInterest": ("FROM Person TO Tag", ""),
    "PersonIsLocatedIn": ("FROM Person TO City", ""),
    "StudyAt": ("FROM Person TO University", "classYear INT32"),
    "WorkAt": ("FROM Person TO Company", "workFrom INT32"),
    "Likes": ("FROM Person TO Message", "creationDate TIMESTAMP"),
    "HasModerator": ("FROM Forum TO Person", ""),
    "HasMember": ("FROM Forum TO Person", "joinDate TIMESTAMP"),
    "ContainerOf": ("FROM Forum TO Message", ""),
    "ForumHasTag": ("FROM Forum TO Tag", ""),
    "HasCreator": ("FROM Message TO Person", ""),
    "MessageIsLocatedIn": ("FROM Message TO Country", ""),
    "HasTag": ("FROM Message TO Tag", ""),
    "ReplyOf": ("FROM Message TO Message", ""),
}


def _kuzu_column(declared: str, kind: str) -> str:
    """What a column of a node table is filled with."""
    name = declared.split(maxsplit=1)[0]
    if name == "isPost":
        return str(kind == "Post").lower()
    return "CAST(NULL AS STRING)" if name == "language" and kind == "Comment" else name
