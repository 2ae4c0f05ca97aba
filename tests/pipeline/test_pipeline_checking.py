"""Pipeline files: what is refused before rows are read."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from omnigraph.errors import (
    PipelineInvalid,
)
from tests.pipeline.workbench import SMALL, Workbench

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

NO_CIRCLE = "a transform reads sources and transforms that do not read it"


def test_c_pip_026_every_problem_is_told_at_its_line(bench: Workbench):
    bench.people("ada@x,Ada,36")
    bench.write("likes.json", '{"who": "ada@x", "note": 1}\n')
    bench.write("bad.gq", "query q { match { $p: Persn } return { $p.name } }")
    assert bench.problems(
        """\
version: 1
name: wrong
graph: graph.omni
target: {branch: b, from: mian, merge_into: main}
sources:
  people: {format: csv, path: people.csv, options: {header: true}}
  gone: {format: csv, path: nowhere.csv}
  strange: {format: parqet, path: people.csv}
  likes: {format: json, path: likes.json}
transforms:
  older:
    sql: select eamil from people
  unknown:
    sql: select * from poeple
  first: {sql: select * from second}
  second: {sql: select * from first}
  broken: {sql: selec 1}
nodes:
  Persn: {from: people}
checks:
  - {name: a, file: bad.gq}
  - {name: b, file: none.gq}
"""
    ) == [
        ("4:21", "target.from", "there is no branch `mian`", "did you mean 'main'?"),
        (
            "7:23",
            "sources.gone.path",
            f"there is no file at {bench.folder}/nowhere.csv",
            "paths are relative to the folder of the pipeline file",
        ),
        (
            "8:3",
            "sources.strange",
            "Spark has no data source `parqet`",
            "did you mean `parquet`?",
        ),
        ("11:3", "transforms.older", "there is no column `eamil`", "did you mean `email`?"),
        (
            "13:3",
            "transforms.unknown",
            "there is no source, transform or table `poeple`",
            "did you mean `people`?",
        ),
        ("15:3", "transforms.first", "needs itself: first → second → first", NO_CIRCLE),
        ("16:3", "transforms.second", "needs itself: second → first → second", NO_CIRCLE),
        (
            "17:3",
            "transforms.broken",
            "syntax error at 'selec', line 1, column 1 of the SQL",
            None,
        ),
        ("19:3", "nodes.Persn", "there is no node type `Persn`", "did you mean 'Person'?"),
        (
            "21:15",
            "checks[0].file",
            f"{bench.folder}/bad.gq:1:23: type error: T1: unknown node type `Persn`",
            "did you mean `Person`?",
        ),
        (
            "22:15",
            "checks[1].file",
            f"{bench.folder}/none.gq: no such file or directory",
            None,
        ),
    ]


def test_c_pip_026_rows_are_not_read(bench: Workbench, monkeypatch: pytest.MonkeyPatch):
    bench.people("ada@x,Ada,36", "bo@x,Bo,not a number")
    bench.write("notes.json", '{"text": "a"}\n' * 2_000 + "no JSON at all\n")
    text = SMALL.replace("nodes:", "  notes: {format: json, path: notes.json}\nnodes:")
    read: list[str] = []
    monkeypatch.setattr("omnigraph.pipeline.files.inputs._content_digest", read.append)
    report = bench.pipeline(text + "  Note: {from: notes}\n").validate(spark=bench.options)
    assert read == []
    assert report.types == ("node:Person", "node:Note")
    assert "the columns are those of the first lines of" in report.notes[0]
    assert bench.commits() == ["genesis"]


def test_c_pip_026_mappings_are_held_against_the_schema(bench: Workbench):
    bench.people("ada@x,Ada,36")
    pq.write_table(
        pa.table({"who": ["a"], "note": ["b"], "n": [1]}), bench.folder / "likes.parquet"
    )
    assert bench.problems(
        """\
version: 1
name: wrong
graph: graph.omni
sources:
  people: {format: csv, path: people.csv, options: {header: true}}
  likes: {format: parquet, path: likes.parquet}
nodes:
  Person:
    from: people
    where: length(name)
    map: {email: emial, name: shout(name), age: age, tags: name, size: "3"}
  Note: {from: likes, map: {text: n}}
edges:
  Knows: {from: people, src: email}
  Likes: {from: likes, src: who, dst: note}
mode: merge
"""
    ) == [
        ("10:5", "nodes.Person.where", "is of type int, not a condition", None),
        ("11:11", "nodes.Person.map.email", "there is no column `emial`", "did you mean `email`?"),
        (
            "11:25",
            "nodes.Person.map.name",
            "there is no function `shout`",
            "functions are those of Spark SQL",
        ),
        (
            "11:44",
            "nodes.Person.map.age",
            "`age` is string, and Person.age is I32?",
            "write `cast(age as int)`, or `try_cast` to make null of bad values",
        ),
        (
            "11:54",
            "nodes.Person.map.tags",
            "`name` is string, and Person.tags is [String]?",
            "write `split(name, ';')` if it is a list in one text",
        ),
        (
            "11:66",
            "nodes.Person.map.size",
            "Person has no property `size`",
            "the columns of Person are age, email, id, name, tags",
        ),
        (
            "12:29",
            "nodes.Note.map.text",
            "`n` is bigint, and Note.text is String",
            "write `cast(n as string)`, or `try_cast` to make null of bad values",
        ),
        ("14:3", "edges.Knows", "does not say `dst`", "every edge names both its nodes"),
        (
            "15:3",
            "edges.Likes",
            (
                "a merge cannot tell which Likes edges are meant: they have no ids, and the type"
                " has no key, so that every repetition would add parallel edges"
            ),
            (
                "declare `@key(src, dst)` in edge Likes, give the edges ids, or load new edges with"
                " mode append"
            ),
        ),
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("version: 1\nname: a\nname: b\n", "pipeline.yaml:3:1: duplicate key `name`"),
        ("version: 2\nname: a\nsources: {}\n", "version: `2` is not possible; it is 1"),
        (SMALL.replace("from: people", "fron: people"), "did you mean `from`?"),
        (SMALL.replace("from: people", "from: peple"), "did you mean `people`?"),
        (SMALL.replace("name: small", "name: a b"), "is no name of a pipeline"),
        (SMALL.replace("people:", "the people:"), "is no name of a table"),
        (SMALL + "target: {branch: x, merge_into: x}\n", "cannot be merged into itself"),
        (
            SMALL + "target: {branch: x}\nchecks: [{name: a, file: a.gq}]\n",
            "needs `merge_into` in `target`",
        ),
        (SMALL + "checks: [{name: a, file: a.gq, expect: few}]\n", "`few` is no expectation"),
        (SMALL.replace("format: csv", "format: 3"), "must be a text, not an integer (`3`)"),
        (
            SMALL.replace("path: people.csv", "path: people.csv, incremental: files")
            + "mode: overwrite\n",
            "does not go with `mode: overwrite`",
        ),
    ],
)
def test_the_grammar_is_strict_and_suggests_the_right_word(bench: Workbench, text, expected):
    with pytest.raises(PipelineInvalid) as wrong:
        bench.pipeline(text)
    assert expected in wrong.value.render()
    assert "pipeline.yaml:" in wrong.value.message
