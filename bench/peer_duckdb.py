"""DuckDB: a relational engine in process, given dense integer keys and edges sorted by source.

Both make it several times faster than the string keys the other engines work with. Its extensions
for text and vectors have to be downloaded, so it ranks vectors by scanning and texts not at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import duckdb

from bench.judges import Parameters
from bench.peers import Answer, Form, used_in
from bench.questions import Wording
from bench.social import DIMENSIONS
from bench.social_files import SocialFiles


def duckdb_database(files: SocialFiles) -> Path:
    """A database with all rows and an index on the key."""
    return files.made("social.duckdb", lambda made: _load(made, files))


def _load(path: Path, files: SocialFiles) -> None:
    with duckdb.connect(str(path)) as connection:
        connection.execute(
            f"CREATE TABLE person AS SELECT * REPLACE (vec::FLOAT[{DIMENSIONS}] AS vec)"
            f" FROM '{files.persons}' ORDER BY row"
        )
        connection.execute("CREATE UNIQUE INDEX person_key ON person(key)")
        for name, parquet in (("knows", files.knows), ("blocks", files.blocks)):
            connection.execute(
                f"CREATE TABLE {name} AS SELECT s.row AS src, d.row AS dst FROM '{parquet}' e"
                " JOIN person s ON s.key = e.src JOIN person d ON d.key = e.dst ORDER BY 1, 2"
            )


class DuckDb:
    """A database, opened for reading."""

    name = "DuckDB"

    def __init__(self, path: Path) -> None:
        self._connection = duckdb.connect(str(path), read_only=True)

    def forms(self, question: Wording) -> Sequence[Form]:
        """Every form of the question in SQL."""
        return [self._form(text) for text in question.sql]

    def _form(self, text: str) -> Form:
        def ask(parameters: Parameters) -> Answer:
            return self._connection.execute(text, used_in(text, parameters)).fetchall()

        return ask

    def close(self) -> None:
        """Close the database."""
        self._connection.close()
