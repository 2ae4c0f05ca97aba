"""Kuzu: a graph engine in process, with full-text and vector indexes of its own."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import kuzu

from bench.judges import Parameters
from bench.peers import Answer, Form, used_in
from bench.questions import OLD, TEXT, VECTOR, Question, Wording
from bench.social import DIMENSIONS
from bench.social_files import SocialFiles

_TABLES = (
    (
        "CREATE NODE TABLE Person(key STRING PRIMARY KEY, name STRING, age INT32, city STRING,"
        f" joined DATE, bio STRING, vec FLOAT[{DIMENSIONS}])"
    ),
    "CREATE REL TABLE Knows(FROM Person TO Person)",
    "CREATE REL TABLE Blocks(FROM Person TO Person)",
)
_INDEXES = {
    TEXT.name: ("bio_fts", "CALL CREATE_FTS_INDEX('Person', 'bio_fts', ['bio'])"),
    VECTOR.name: (
        "vec_hnsw",
        "CALL CREATE_VECTOR_INDEX('Person', 'vec_hnsw', 'vec', metric := 'l2')",
    ),
}
_PROJECTION = f"CALL PROJECT_GRAPH_CYPHER('older', 'MATCH (n:Person) WHERE n.age > {OLD} RETURN n')"


def kuzu_database(files: SocialFiles) -> Path:
    """A database with all rows and no index but that of the key."""
    return files.made("kuzu.db", lambda made: _load(made, files))


def kuzu_search_database(files: SocialFiles, questions: Sequence[Question]) -> Path:
    """A database with the indexes some questions need, apart because they slow down opening it."""
    plain = kuzu_database(files)
    path = files.made("kuzu-search.db", lambda made: shutil.copyfile(plain, made))
    with kuzu.Database(str(path)) as database, kuzu.Connection(database) as connection:
        known = {row[1] for row in kuzu_rows(connection, "CALL SHOW_INDEXES() RETURN *")}
        for question in questions:
            name, statement = _INDEXES[question.name]
            if name not in known:
                kuzu_rows(connection, statement)
    return path


def _load(path: Path, files: SocialFiles) -> None:
    vector = f"CAST(vec AS FLOAT[{DIMENSIONS}])"
    with kuzu.Database(str(path)) as database, kuzu.Connection(database) as connection:
        for statement in _TABLES:
            kuzu_rows(connection, statement)
        kuzu_rows(
            connection,
            f"COPY Person FROM (LOAD FROM '{files.persons}'"
            f" RETURN key, name, age, city, joined, bio, {vector})",
        )
        kuzu_rows(connection, f"COPY Knows FROM '{files.knows}'")
        kuzu_rows(connection, f"COPY Blocks FROM '{files.blocks}'")


class KuzuConnection:
    """A database and one connection to it, which uses all cores."""

    name = "Kuzu"

    def __init__(self, path: Path, *, read_only: bool = True) -> None:
        self.database = kuzu.Database(str(path), read_only=read_only)
        self.connection = kuzu.Connection(self.database)

    def forms(self, question: Wording) -> Sequence[Form]:
        """Every form of the question in Cypher."""
        return [_form(self.connection, text) for text in question.cypher]

    def close(self) -> None:
        """Close the database, which flushes what a writing one holds."""
        self.connection.close()
        self.database.close()


class Kuzu:
    """Two databases of the same rows, each opened by one connection that uses all cores."""

    name = KuzuConnection.name

    def __init__(self, files: SocialFiles, questions: Sequence[Question]) -> None:
        self._plain = KuzuConnection(kuzu_database(files))
        self._search: KuzuConnection | None = None
        searching = [question for question in questions if question.name in _INDEXES]
        if searching:
            # Projecting counts as writing, although it is forgotten with the connection.
            self._search = KuzuConnection(kuzu_search_database(files, searching), read_only=False)
            kuzu_rows(self._search.connection, _PROJECTION)

    def forms(self, question: Wording) -> Sequence[Form]:
        """Every form of the question in Cypher."""
        opened = self._search if question.name in _INDEXES else self._plain
        assert opened is not None, f"{question.name} was not announced"
        return opened.forms(question)

    def close(self) -> None:
        """Close the databases, which flushes what a writing one holds."""
        for opened in (self._plain, self._search):
            if opened is not None:
                opened.close()


def kuzu_forms_of_threads(path: Path, question: Question, count: int) -> list[Form]:
    """The first form of a question, for each of some threads by a connection of its own."""
    database = kuzu.Database(str(path), read_only=True)
    connections = [kuzu.Connection(database, num_threads=1) for _ in range(count)]
    return [_form(connection, question.cypher[0]) for connection in connections]


def _form(connection: kuzu.Connection, text: str) -> Form:
    def ask(parameters: Parameters) -> Answer:
        return kuzu_rows(connection, text, used_in(text, parameters))

    return ask


def kuzu_rows(
    connection: kuzu.Connection, text: str, parameters: Parameters | None = None
) -> Answer:
    """All rows of a statement."""
    result = connection.execute(text, dict(parameters or {}))
    assert isinstance(result, kuzu.QueryResult)
    try:
        return result.get_all()
    finally:
        result.close()
