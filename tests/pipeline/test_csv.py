"""CSV files: rows that are not as their header says, quotes, encodings, ranges. By threads."""

from __future__ import annotations

import gzip
from io import BytesIO
from pathlib import Path
from random import Random
from typing import Any

import pyarrow.csv as pac
import pytest

import omnigraph
from omnigraph.errors import InputError, OmnigraphError
from omnigraph.graph import ErrorOptions, Graph, SparkOptions
from omnigraph.loading.formats.csv_quotes import row_blocks, rows_of
from omnigraph.loading.pieces import InputPlan, plan_sources
from omnigraph.loading.reading import PieceReader
from omnigraph.loading.sources import FileSource
from tests.commit.loading import catalog
from tests.pipeline.conftest import SCHEMA
from tests.pipeline.test_sources import entities, reading


def load(graph: Graph, path: Path, text: str | bytes, type: str = "Person", **more: Any) -> Any:
    """The entities that a file gives, or the error."""
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    try:
        graph.load(
            nodes={type: path}, mode="append", engine="local", errors=ErrorOptions(99), **more
        )
    except OmnigraphError as error:
        return error
    return entities(graph)


def told(error: Any) -> list[tuple[int, str]]:
    """The problems of an input: record and message."""
    assert isinstance(error, InputError), error
    problems = error.details.get("problems", [error.details])
    return [(each["record"], each["message"]) for each in problems]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "p.csv"


# --- headers ---


@pytest.mark.parametrize(
    "text", ["slug,name", "slug,name\n", "\n\r\nslug,name\r\n", '"slug","name"']
)
def test_a_header_alone_is_a_file_without_rows(graph, path, text):
    assert load(graph, path, text) == {}


@pytest.mark.parametrize(
    "text",
    [
        "\n\nslug,name\nada,A\n",
        "\ufeffslug,name\r\nada,A\r\n",
        '\ufeff"slug","name"\n\n"ada","A"\n\n',
        "slug,name\rada,A\r",
    ],
)
def test_blank_lines_and_marks_before_a_header_are_passed_over(graph, path, text):
    assert load(graph, path, text)["ada"]["name"] == "A"


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("\n\n", "has no header", "first row"),
        ('slug,"na\nme"\nada,A\n', "unknown column 'na\nme'", "did you mean 'name'"),
        ('slug,"name\nada,A\n', "has a header with an unclosed quote", "written twice"),
        ("slug;name\nada;A\n", "one column, with semicolons in its name", "commas in .csv"),
        ("slug\tname\nada\tA\n", "one column, with tabs in its name", "tabs in .tsv"),
        ("slug,größe\nada,A\n".encode("latin-1"), "is not UTF-8", "save the file as UTF-8"),
        ("slug,name\nada,A\n".encode("utf-16"), "is not UTF-8", "save the file as UTF-8"),
        ("slug,name\nada,A\n".encode("utf-16-le"), "is not UTF-8", "save the file as UTF-8"),
    ],
)
def test_a_header_that_cannot_be_one_is_refused_with_a_way_out(graph, path, text, message, hint):
    error = load(graph, path, text)
    assert isinstance(error, InputError)
    assert message in error.message and hint in (error.hint or "")
    assert error.message.count("p.csv") == 1


@pytest.mark.parametrize("name", ["p.TSV", "p.tsv", "p.Tsv.gz"])
def test_capitals_in_a_name_mean_the_same(graph, tmp_path, name):
    text = b"slug\tname\nada\tA, B\n"
    found = load(graph, tmp_path / name, gzip.compress(text) if name.endswith("gz") else text)
    assert found["ada"]["name"] == "A, B"


# --- rows ---


def test_c_pip_004_rows_with_other_cells_than_the_header_are_problems_of_their_own(graph, path):
    error = load(
        graph, path, "slug,name,age\nada,A\n\nbob,B,old\ncid,C,1,\ndan,D,1\nada,,\nada,,\n"
    )
    assert [number for number, _ in told(error)] == [1, 2, 3, 6]
    assert told(error)[0] == (1, "the record has 2 cells, the header has 3")
    assert told(error)[2] == (3, "the record has 4 cells, the header has 3")


@pytest.mark.parametrize(
    ("text", "records"),
    [
        ('slug,name\nada,"A\nbob,B\ncid,C\n', [1]),
        ('slug,name\nbob,B\nada,"A\ncid,C', [2]),
        ('slug,name\nada,"A"",\nbob,"B"""\ncid,"C\n', [1, 2]),
        # The quote of the next cell closes the one before.
        ('slug,name\nbob,B\nada,"A\ncid,"C"\ndan,D\n', [2]),
        ('"slug","name"\n"ada","A\n"bob","B"\n"cid","C"\n', [1]),
    ],
)
def test_an_unclosed_quote_is_told_where_it_opens(graph, path, text, records):
    error = load(graph, path, text)
    assert [number for number, _ in told(error)] == records
    assert all("a quoted cell" in message for _, message in told(error))
    assert len(graph.list_commits()) == 1


def test_other_quotes_are_characters(graph, path):
    text = (
        'slug,name,email\nada,5" disc,a\nbob,"6"" disc, ""x""\n2",b\ncid,a "b" c,"c"\ndan,"""",""\n'
    )
    found = load(graph, path, text)
    assert {key: each["name"] for key, each in found.items()} == {
        "ada": '5" disc',
        "bob": '6" disc, "x"\n2',
        "cid": 'a "b" c',
        "dan": '"',
    }


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_records_that_are_not_utf8_are_told_with_a_way_out(graph, path, newline):
    text = "slug,name,age\nada,Ä,1\nbob,Öde\ncid,C,x\n".replace("\n", newline).encode("latin-1")
    error = load(graph, path, text)
    assert told(error)[:2] == [(1, "the record is not UTF-8"), (2, "the record is not UTF-8")]
    assert (told(error)[2][0], error.hint) == (3, "save the file as UTF-8")


def test_empty_cells_in_quotes_are_null_unless_they_are_texts(graph, path):
    names = ["name", "age", "visits", "weight", "active", "born", "seen", "tags", "leaf", "photo"]
    found = load(graph, path, f"slug,{','.join(names)}\n" + ",".join(['"a"', *['""'] * 10]) + "\n")
    assert [found["a"][name] for name in names] == ["", *[None] * 9]


def test_dates_are_taken_as_texts_and_as_the_numbers_that_export_writes(graph, path):
    text = "slug,born,seen\na,-1,1767607200000\nb,2026-01-05,2026-01-05T10:00:00Z\nc,20458,\n"
    found = load(graph, path, text)
    assert [found[key]["born"] for key in "abc"] == [-1, 20458, 20458]
    assert [found[key]["seen"] for key in "abc"] == [1767607200000, 1767607200000, None]
    error = load(graph, path, "slug,born\nd,20260105\ne,1-2\n")
    assert [number for number, _ in told(error)] == [1, 2]


# --- parts of a file ---


def cut(path: Path, monkeypatch: pytest.MonkeyPatch, size: int) -> InputPlan:
    """A file in ranges of about ``size`` bytes, which are read in blocks that are smaller still."""
    monkeypatch.setattr("omnigraph.loading.pieces.WHOLE_BYTES_MAX", size)
    monkeypatch.setattr("omnigraph.loading.pieces.TASK_BYTES_MIN", size)
    monkeypatch.setattr("omnigraph.loading.formats.csv_rows.BLOCK_BYTES", size // 2)
    monkeypatch.setattr("omnigraph.loading.pieces.CHUNK_BYTES", size // 4)
    source = FileSource(str(path), "node:Person")
    return plan_sources([source], catalog(SCHEMA), slots=100, lines_only=True)


def test_a_csv_is_cut_where_no_cell_is_open(path, monkeypatch):
    cell = '"a ""quoted""\n' + "x" * 500 + '\nlast, line"'
    cells = ['6" disc' if i % 10 == 0 else cell for i in range(100)]
    path.write_text("slug,name\n" + "".join(f"p{i},{each}\n\n" for i, each in enumerate(cells)))
    plan = cut(path, monkeypatch, 1_000)
    assert len(plan.tasks) > 20
    reader = PieceReader(reading())
    names: list[str] = []
    for piece in plan.pieces.values():
        before = len(names)
        for (rows,), problems in reader.read(piece):
            assert not problems
            names += rows.rows["slug"].to_pylist()
        assert reader.records == len(names) - before
    assert names == [f"p{i}" for i in range(100)]


def test_records_are_counted_from_the_beginning_of_a_file_that_is_read_in_parts(
    graph, path, monkeypatch
):
    rows = [f'p{i},"{i}\n"' for i in range(99)]
    rows[10] = "p10,x,y"
    rows[40] = 'p40,"4"0'
    rows[60] = "Upper,x"
    rows[80:] = ['p80,"never', *(f"p{i},x" for i in range(81, 99))]
    path.write_text("slug,name\n\n" + "\n\n".join(rows))
    cut(path, monkeypatch, 100)
    error = load(graph, path, path.read_bytes())
    assert told(error)[:2] == [
        (11, "the record has 3 cells, the header has 2"),
        (41, "a quoted cell goes on behind its closing quote"),
    ]
    assert [number for number, _ in told(error)] == [11, 41, 61, 81]


def test_a_row_without_an_end_is_not_held_beyond_a_bound(graph, path, monkeypatch):
    monkeypatch.setattr("omnigraph.loading.formats.csv_quotes.ROW_BYTES_MAX", 1_000)
    path.write_text("slug,name\nada,A\nbob," + '"B' + "x,\n" * 1_000)
    cut(path, monkeypatch, 100)
    error = load(graph, path, path.read_bytes())
    ((number, message),) = told(error)
    assert number == 2 and message.startswith("the record has more than")


def slow_rows(text: str) -> tuple[list[str], bool, bool]:
    """The rows of a text character by character, whether it ends in quotes, and has strays."""
    rows, row, state, has_stray = [], "", "start", False
    for character in text:
        row += character
        if state == "quoted":
            if character == '"':
                state = "closed"
        elif character == '"' and state in ("start", "closed"):
            state = "quoted"
        elif character in ",\r\n":
            state = "start"
            if character != ",":
                rows.append(row)
                row = ""
        else:
            has_stray |= state == "closed"
            state = "cell"
    return [*rows, *([row] if row else [])], state == "quoted", has_stray


@pytest.mark.parametrize("seed", range(4))
def test_rows_end_where_a_reader_of_characters_sees_it(seed):
    random = Random(seed)
    for _ in range(500):
        text = "".join(random.choices('a,"\n\r', [3, 3, 3, 2, 1], k=random.randrange(1, 30)))
        blocks = [text[i : i + 3].encode() for i in range(0, len(text), 3)]
        found = list(row_blocks(blocks, ",", 5))
        rows = [row.decode().rstrip("\r\n") for block in found for _, row in rows_of(block)]
        expected, is_open, has_stray = slow_rows(text)
        assert rows == [row.rstrip("\r\n") for row in expected if row.strip("\r\n")], text
        assert found[-1].quotes.is_open == is_open, text
        assert any(len(block.quotes.stray) for block in found) == has_stray, text
        if not is_open:
            assert arrow_rows(text) == len(rows), text


def arrow_rows(text: str) -> int:
    """How many rows Arrow sees in a text, with two cells or others."""
    others = 0

    def skip(row: pac.InvalidRow) -> str:
        nonlocal others
        others += 1
        return "skip"

    options = pac.ParseOptions(invalid_row_handler=skip)
    names = pac.ReadOptions(column_names=["a", "b"])
    return int(pac.read_csv(BytesIO(text.encode()), names, options).num_rows) + others


# --- on Spark ---


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
def test_c_pip_002_both_engines_find_the_same_problems_in_texts(spark, tmp_path):
    (tmp_path / "p.csv").write_text('slug,age\na,1,2\nb,x\n"c"d,1\ne\nf,"1\n')
    (tmp_path / "q.jsonl").write_text('{"slug": "a"}\n{broken\n\n{"slug": "g", "age": 2.0}\n')
    nodes = {"Person": [tmp_path / "p.csv", tmp_path / "q.jsonl"]}
    found = []
    engines: dict[Any, dict[str, Any]] = {"local": {}, "spark": {"spark": SparkOptions(spark)}}
    for engine, options in engines.items():
        graph = omnigraph.init(tmp_path / f"{engine}.omni", SCHEMA)
        with pytest.raises(InputError) as caught:
            graph.load(
                nodes=nodes, mode="append", engine=engine, errors=ErrorOptions(99), **options
            )
        found.append(caught.value.details)
    assert found[0] == found[1]
    assert found[0]["counts"] == {"bad_record": 4, "bad_value": 2, "invalid_json": 1}


# --- defaults ---

DEFAULTS = """
node T {
    k: String @key
    size: I32 @default(3)
    name: String @default("none")
    tags: [String]?
    born: Date
    mark: I32? @default(5)
}
"""


def test_an_empty_cell_of_a_required_property_takes_its_default(tmp_path):
    graph = omnigraph.init(tmp_path / "t.omni", DEFAULTS)
    text = 'k,size,name,born,mark\na,,,2026-01-01,\nb,4,"",2026-01-01,6\nc,"",x,2026-01-01,\n'
    found = load(graph, tmp_path / "t.csv", text, "T")
    rows = [[found[k][name] for name in ("size", "name", "mark")] for k in "abc"]
    # An empty text in quotes is a text; and null is a value where a property may have none.
    assert rows == [[3, "none", None], [4, "", 6], [3, "x", None]]


def test_an_empty_cell_beside_a_bad_one_still_takes_the_default(tmp_path):
    graph = omnigraph.init(tmp_path / "t.omni", DEFAULTS)
    text = "k,size,born\na,,2026-01-01\nb,many,2026-01-01\nc,5,\n"
    problems = told(load(graph, tmp_path / "t.csv", text, "T"))
    assert [record for record, _ in problems] == [2, 3]
