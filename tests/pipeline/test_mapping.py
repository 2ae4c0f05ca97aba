"""Mapping columns to properties: names, positions, expressions, conditions. By threads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pac
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import omnigraph
from omnigraph.errors import InputError, OmnigraphError
from omnigraph.graph import CsvOptions, ErrorOptions, Graph
from omnigraph.loading.map_expressions import FUNCTIONS, parse_expression

SCHEMA = """
node Film {
    code: String @key
    title: String?
    rating: F64?
    genres: [String]?
    scores: [I64]?
    released: Date?
    seen: DateTime?
    votes: I64?
    country: String?
}
node Person { id_number: I64 @key  name: String?  born: Date?  emails: [String]? }
node City { name: String @key }
node Country { name: String @key }
edge Likes: Person -> Film { weight: F64? }
edge Knows: Person -> Person { since: DateTime? }
"""


@pytest.fixture(autouse=True)
def on_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """By threads; the parity of Spark is tested in `test_parity`."""
    monkeypatch.setenv("OMNIGRAPH_ENGINE", "local")


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    """One graph for all tests, which overwrite what they load."""
    return omnigraph.init(tmp_path_factory.mktemp("mapped") / "graph.omni", SCHEMA)


def rows(graph: Graph, type: str = "Film") -> list[dict[str, Any]]:
    """The data of every entity of a type."""
    records = map(json.loads, b"".join(graph.export()).splitlines())
    kind = "edge" if type[0] in "LK" and type in ("Likes", "Knows") else "type"
    found = []
    for record in records:
        if record.get(kind) == type:
            ends = {end: record[end] for end in ("from", "to") if end in record}
            data = {k: v for k, v in record["data"].items() if v is not None and k != "id"}
            found.append(ends | data)
    return sorted(found, key=lambda each: json.dumps(each, sort_keys=True))


def load(graph: Graph, path: Path, text: str, map: Any = None, **more: Any) -> Any:
    """The films that a file gives, or the error."""
    path.write_text(text)
    try:
        graph.load(
            nodes={"Film": path},
            map=map,
            mode="overwrite",
            engine="local",
            errors=ErrorOptions(99),
            **more,
        )
    except OmnigraphError as error:
        return error
    return rows(graph)


FILM = {"code": "a", "title": "Alien", "rating": 8.5}

# --- names, in every format ---


def _csv(path: Path, table: dict[str, list[Any]]) -> Path:
    cells = [table.keys(), *zip(*table.values(), strict=True)]
    path = path.with_suffix(".csv")
    path.write_text("\n".join(",".join("" if c is None else str(c) for c in row) for row in cells))
    return path


def _json(path: Path, table: dict[str, list[Any]]) -> Path:
    path = path.with_suffix(".jsonl")
    path.write_text("\n".join(map(json.dumps, pa.table(table).to_pylist())))
    return path


def _array(path: Path, table: dict[str, list[Any]]) -> Path:
    path = path.with_suffix(".json")
    path.write_text(json.dumps(pa.table(table).to_pylist(), indent=2))
    return path


def _parquet(path: Path, table: dict[str, list[Any]]) -> Path:
    path = path.with_suffix(".parquet")
    pq.write_table(pa.table(table), path)
    return path


FORMATS = (_csv, _json, _parquet)
TABLE: dict[str, list[Any]] = {
    "id": ["a"],
    "Main Title": [" Alien "],
    "IMDB Rating": [8.5],
    "junk": [1],
}
MAP = {"id": "code", "trim(`Main Title`)": "title", '"IMDB Rating"': "rating", "junk": None}


@pytest.mark.parametrize("write", FORMATS)
def test_c_pip_038_columns_are_renamed_computed_and_left_out_in_every_format(
    graph, tmp_path, write
):
    graph.load(nodes={"Film": write(tmp_path / "f", TABLE)}, map=MAP, mode="overwrite")
    assert rows(graph) == [FILM]


def test_c_pip_038_frames_are_mapped_as_files_are(graph):
    graph.load(frames={"Film": pa.table(TABLE)}, map={"Film": MAP}, mode="overwrite")
    assert rows(graph) == [FILM]


def test_the_texts_of_the_command_line_mean_the_same(graph, tmp_path):
    path = _csv(tmp_path / "f", TABLE)
    texts = ["id=code", "trim(`Main Title`)=title", "IMDB Rating=rating", "junk="]
    graph.load(nodes={"Film": path}, map=texts, mode="overwrite")
    assert rows(graph) == [FILM]
    of_type = [f"Film:{text}" for text in texts]
    graph.load(nodes={"Film": path}, map=of_type, mode="overwrite")
    assert rows(graph) == [FILM]
    with pytest.raises(InputError, match="unknown column 'Main Title'"):
        # What is said of the file counts, and not what is said of its type.
        graph.load(nodes={"Film": path}, map=[*of_type, f"{path}:junk="], mode="overwrite")


def test_each_file_has_its_own_mapping(graph, tmp_path):
    first, second = _csv(tmp_path / "a", {"A": ["a"]}), _csv(tmp_path / "b", {"B": ["b"]})
    mapping = {str(first): {"A": "code"}, "Film": {"B": "code"}, "City": {"town": "name"}}
    towns = _csv(tmp_path / "c", {"town": ["Graz"]})
    graph.load(nodes={"Film": [first, second], "City": towns}, map=mapping, mode="overwrite")
    assert [each["code"] for each in rows(graph)] == ["a", "b"]
    assert rows(graph, "City") == [{"name": "Graz"}]


@pytest.mark.parametrize("write", FORMATS)
def test_a_column_that_an_expression_reads_keeps_its_own_property(graph, tmp_path, write):
    path = write(tmp_path / "f", {"code": ["A"], "title": ["Alien"]})
    graph.load(
        nodes={"Film": path},
        map={"lower(code)": "code", "upper(title)": "country"},
        mode="overwrite",
    )
    assert rows(graph) == [{"code": "a", "title": "Alien", "country": "ALIEN"}]


def test_two_columns_can_change_places(graph, tmp_path):
    for write in FORMATS:
        path = write(tmp_path / "f", {"code": ["x"], "title": ["a"]})
        graph.load(nodes={"Film": path}, map={"code": "title", "title": "code"}, mode="overwrite")
        assert rows(graph) == [{"code": "a", "title": "x"}]


# --- expressions ---

EXPRESSIONS = [
    ('lower("ÄB")', "title", "äb"),
    ("upper(t)", "title", " STRASSE "),
    ("trim(t)", "title", "straße"),
    ('replace(t, "ß", "ss")', "title", " strasse "),
    ('concat(trim(t), "-", n)', "title", "straße-1577836800000"),
    ('coalesce(empty, "none")', "title", "none"),
    ('nullif(na, "N/A")', "title", None),
    ('split(list, ";")', "genres", ["a", "b"]),
    ('split(numbers, ";")', "scores", [1, 2]),
    ('date(day, "%d/%m/%Y")', "released", 18_321),
    ("from_millis(n)", "released", 18_262),
    ("from_millis(n)", "seen", 1_577_836_800_000),
    ("from_seconds(s)", "seen", 1_577_836_800_000),
    ('datetime(at, "%Y-%m-%d %H:%M %z")', "seen", 1_577_872_800_000),
    ('const("DE")', "country", "DE"),
    ("const(7)", "votes", 7),
    ('const("7")', "votes", 7),
]
CELLS = {
    "code": ["a"],
    "t": [" straße "],
    "n": [1_577_836_800_000],
    "s": [1_577_836_800],
    "empty": [None],
    "na": ["N/A"],
    "list": ["a;b"],
    "numbers": ["1;2"],
    "day": ["29/02/2020"],
    "at": ["2020-01-01 12:00 +0200"],
}


@pytest.mark.parametrize("write", FORMATS)
def test_expressions_give_the_same_values_in_every_format(graph, tmp_path, write):
    path = write(tmp_path / "f", CELLS)
    for expression, name, expected in EXPRESSIONS:
        graph.load(
            nodes={"Film": path},
            map={expression: name},
            mode="overwrite",
            errors=ErrorOptions(ignore_unknown=True),
        )
        (film,) = rows(graph)
        assert film.get(name) == expected, expression


def test_every_function_is_tried_above():
    tried = " ".join(expression for expression, _, _ in EXPRESSIONS)
    assert [name for name in FUNCTIONS if f"{name}(" not in tried] == []


@pytest.mark.parametrize("write", FORMATS)
def test_a_value_that_a_function_cannot_take_is_a_problem_of_its_record(graph, tmp_path, write):
    table = {"code": list("abcd"), "day": ["31/02/2020", "2020", None, "01/03/2020"]}
    path = write(tmp_path / "f", table)
    with pytest.raises(InputError) as caught:
        graph.load(
            nodes={"Film": path}, map={'date(day, "%d/%m/%Y")': "released"}, mode="overwrite"
        )
    problems = caught.value.details["problems"]
    assert [each.get("record", each.get("line")) for each in problems] == [1, 2]
    assert problems[0]["message"] == "'31/02/2020' is no date in the format \"%d/%m/%Y\""
    assert problems[0]["property"] == "released" and problems[0]["file"] == str(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("lower()", "stands where a value should"),
        ("lower(a, b)", r"'lower' is written lower\(text\)"),
        ("lower(lowr(a))", "has no function 'lowr'"),
        ("split(a, b)", "'split' takes a constant there"),
        ('split(a, "")', "a text that is not empty"),
        ('date(a, "%Q")', "a format has no '%Q'"),
        ('date(a, "day")', "a format says where the parts are"),
        ('lower("\\x")', r"a text has no '\\x'"),
        ("lower(a) b)", "there is more behind its closing bracket"),
        ("lower(§)", "'§\\)' cannot be read"),
        ("lower(" * 30 + "a" + ")" * 30, "more than 20 calls"),
        ("", "has no column"),
    ],
)
def test_an_expression_that_cannot_be_read_says_why(text, message):
    with pytest.raises(InputError, match=message) as caught:
        parse_expression(text)
    assert caught.value.hint


# --- CSV ---


def test_c_pip_038_ldbc_files_are_loaded_as_they_are(graph, tmp_path):
    person, knows, place = (tmp_path / f"{name}.csv" for name in ("person", "knows", "place"))
    person.write_text(
        "id|name|birthday|email\n1|Ada|347155200000|a@x.org;b@x.org\n2|Bo|-86400000|\n"
    )
    knows.write_text("Person.id|Person.id|creationDate\n1|2|1577836800000\n")
    place.write_text("id|name|type\n1|Graz|city\n2|Austria|country\n3|Wien|city\n")
    receipt = graph.load(
        nodes={"Person": person, "City": place, "Country": place},
        edges={"Knows": knows},
        map={
            "Person": {"id": "id_number", "from_millis(birthday)": "born", "email": "emails"},
            "Knows": {"#1": "from", "#2": "to", "creationDate": "since"},
            "City": {"id": None},
            "Country": {"id": None},
        },
        where={"City": {"type": "city"}, "Country": {"type": "country"}},
        csv=CsvOptions(delimiter="|", list_separator=";"),
        mode="overwrite",
    )
    assert receipt.to_dict()["inserted"] == 6
    assert rows(graph, "Person") == [
        {"born": -1, "id_number": 2, "name": "Bo"},
        {"born": 4018, "emails": ["a@x.org", "b@x.org"], "id_number": 1, "name": "Ada"},
    ]
    assert rows(graph, "Knows") == [{"from": "1", "since": 1_577_836_800_000, "to": "2"}]
    assert rows(graph, "City") == [{"name": "Graz"}, {"name": "Wien"}]
    assert rows(graph, "Country") == [{"name": "Austria"}]


def test_c_qry_081_ldbc_messages_are_loaded_as_they_are(tmp_path):
    """One file of creators for posts and comments, one of places for three types of places."""
    forum = omnigraph.init(
        tmp_path / "forum.omni",
        """
        interface Message { content: String?  length: I32 }
        interface Place { name: String }
        node Person { number: I64 @key  name: String }
        node Post implements Message { number: I64 @key  language: String? }
        node Comment implements Message { number: I64 @key }
        node City implements Place { number: I64 @key }
        node Country implements Place { number: I64 @key }
        edge HasCreator: Message -> Person @card(1..1)
        edge ReplyOf: Comment -> Message @card(1..1)
        edge Likes: Person -> Message { since: DateTime  @key(src, dst) }
        edge IsPartOf: Place -> Place @card(0..1)
        """,
    )
    files = {
        "person": "id|name\n1|Ada\n2|Bo\n",
        "post": "id|language|content|length\n10|en|Hello|5\n11|||0\n",
        "comment": "id|content|length\n20|Yes|3\n21|No|2\n",
        "place": "id|name|type\n1|Graz|city\n2|Austria|country\n",
        "creator": "Message.id|Person.id\n10|1\n11|2\n20|2\n21|1\n",
        "reply": "Comment.id|Message.id\n20|10\n21|20\n",
        "likes": "Person.id|Message.id|creationDate\n1|20|1577836800000\n2|10|1577836800001\n",
        "part": "Place.id|Place.id\n1|2\n",
    }
    for name, text in files.items():
        (tmp_path / f"{name}.csv").write_text(text)
    ends = {"#1": "from", "#2": "to"}
    receipt = forum.load(
        nodes={
            "Person": tmp_path / "person.csv",
            "Post": tmp_path / "post.csv",
            "Comment": tmp_path / "comment.csv",
            "City": tmp_path / "place.csv",
            "Country": tmp_path / "place.csv",
        },
        edges={
            "HasCreator": tmp_path / "creator.csv",
            "ReplyOf": tmp_path / "reply.csv",
            "Likes": tmp_path / "likes.csv",
            "IsPartOf": tmp_path / "part.csv",
        },
        map={
            **{name: {"id": "number"} for name in ("Person", "Post", "Comment", "City", "Country")},
            **dict.fromkeys(("HasCreator", "ReplyOf", "IsPartOf"), ends),
            "Likes": {**ends, "creationDate": "since"},
        },
        where={"City": {"type": "city"}, "Country": {"type": "country"}},
        csv=CsvOptions(delimiter="|"),
        errors=ErrorOptions(ignore_unknown=True),
        mode="append",
    )
    assert receipt.to_dict()["inserted"] == 8 + 4 + 2 + 2 + 1
    thread = forum.query(
        """
        query q() {
            match { $c: Comment  $c replyOf{1,9} $p  $p is Post  $c hasCreator $who }
            return { $who.name as name, $c, $p.language as language }
            order { $c.number }
        }
        """
    )
    assert [tuple(row.values()) for row in thread.to_pylist()] == [
        ("Bo", "20", "en"),
        ("Ada", "21", "en"),
    ]
    parts = forum.query(
        "query q() { match { $a isPartOf $b } return { $a.name, $a.@type as a, $b.@type as b } }"
    )
    assert parts.to_pylist() == [{"a.name": "Graz", "a": "City", "b": "Country"}]


def test_c_pip_038_040_ends_of_several_types_in_one_file_are_told_by_their_nodes(tmp_path):
    """The file does not say what its ends are: each edge type takes the rows whose nodes it has."""
    places = omnigraph.init(
        tmp_path / "places.omni",
        """
        node City { number: I64 @key  name: String }
        node Country { number: I64 @key  name: String }
        node Continent { number: I64 @key  name: String }
        edge InCountry: City -> Country @card(0..1)
        edge InContinent: Country -> Continent @card(0..1)
        """,
    )
    place, part_of, errors = (tmp_path / each for each in ("place.csv", "part.csv", "errors.jsonl"))
    place.write_text(
        "id|name|type\n1|Graz|city\n2|Austria|country\n3|Europe|continent\n4|Wien|city\n"
    )
    part_of.write_text("Place.id|Place.id\n1|2\n2|3\n4|2\n4|9\n")
    ends = {"#1": "from", "#2": "to"}
    kinds = ("City", "Country", "Continent")
    receipt = places.load(
        nodes=dict.fromkeys(kinds, place),
        edges={"InCountry": part_of, "InContinent": part_of},
        map={**{each: {"id": "number"} for each in kinds}, "InCountry": ends, "InContinent": ends},
        where={each: {"type": each.lower()} for each in kinds},
        csv=CsvOptions(delimiter="|"),
        mode="append",
        errors=ErrorOptions(on_error="skip", errors_out=errors),
    )
    assert {each.name: each.inserted for each in receipt.edges} == {
        "InCountry": 2,
        "InContinent": 1,
    }
    skipped = [json.loads(line) for line in errors.read_text().splitlines()]
    wanted = {("InCountry", 2), ("InCountry", 4), *(("InContinent", n) for n in (1, 3, 4))}
    assert {(each["type"], each["record"]) for each in skipped} == wanted
    # Only row 4 is skipped by both: it is the one with a mistake.


@pytest.mark.parametrize("write", FORMATS)
def test_c_pip_038_conditions_may_exclude_a_value(graph, tmp_path, write):
    table = {"code": ["a", "b", "c", "d"], "country": ["NO", None, "DE", "NO"]}
    path = write(tmp_path / "films", table)
    for where, codes in (
        ({"country!": "NO"}, "bc"),
        ({"country!": None}, "acd"),
        (["country!=", "`country`!=DE"], "ad"),
        ({"Film": {"country": "NO", "code!": "a"}}, "d"),
    ):
        graph.load(nodes={"Film": path}, where=where, mode="overwrite", engine="local")
        assert "".join(each["code"] for each in rows(graph)) == codes


def test_problems_of_chosen_rows_keep_the_numbers_of_the_file(graph, tmp_path):
    text = "code,kind,votes\na,film,1\nb,book,x\nc,film,x\n"
    error = load(graph, tmp_path / "f.csv", text, where={"kind": "film"})
    (problem,) = error.details.get("problems", [error.details])
    assert problem["record"] == 3


@pytest.mark.parametrize("write", FORMATS)
def test_c_pip_038_a_condition_compares_texts_of_any_values(graph, tmp_path, write):
    table = {"code": list("abc"), "n": [1, 2, None], "kind": ["x", "x", None]}
    path = write(tmp_path / "f", table)
    for where, expected in (({"n": 2}, "b"), (["kind="], "c"), ({"kind": "x", "n": "1"}, "a")):
        graph.load(
            nodes={"Film": path},
            where=where,
            mode="overwrite",
            errors=ErrorOptions(ignore_unknown=True),
        )
        assert [each["code"] for each in rows(graph)] == [expected]


def test_c_pip_038_items_of_lists_are_read_as_cells_of_their_type(graph, tmp_path):
    text = "code,scores,genres\na,1;2,x;y\nb,,\n"
    bad = text + "c,1;z,\n"
    error = load(graph, tmp_path / "f.csv", bad, csv=CsvOptions(list_separator=";"))
    (problem,) = error.details.get("problems", [error.details])
    assert (problem["record"], problem["property"]) == (3, "scores")
    found = load(graph, tmp_path / "f.csv", text, csv=CsvOptions(list_separator={"Film": ";"}))
    assert found == [{"code": "a", "genres": ["x", "y"], "scores": [1, 2]}, {"code": "b"}]


@pytest.mark.parametrize("delimiter", ["", "||", '"', "\n", "a", "é"])
def test_a_delimiter_is_one_character(graph, tmp_path, delimiter):
    error = load(graph, tmp_path / "f.csv", "code\na\n", csv=CsvOptions(delimiter))
    assert "a delimiter is one character between cells" in str(error)


def test_another_delimiter_is_hinted_at(graph, tmp_path):
    error = load(graph, tmp_path / "f.csv", "code|title\na|b\n")
    assert "--delimiter '|'" in error.hint


# --- what cannot be mapped ---


@pytest.mark.parametrize(
    ("map", "message", "hint"),
    [
        ({"Titel": "title"}, "the mapped column 'Titel' is not there", "Title"),
        ({"Title": "titel"}, "'Title' is mapped to 'titel', which Film does not have", "title"),
        ({"Title": "title", "Other": "title"}, "'title' is mapped twice", "coalesce"),
        ({"#9": "title"}, "the mapped column '#9' is not there: it has 3 columns", "map another"),
        ({"Title": "code", "Other": "title"}, "'code' is given twice", "'code='"),
        ({"Film": {"lower(Ttle)": "title"}}, "the mapped column 'Ttle' is not there", "Title"),
        ({"lower(Title)": None}, "an expression is left out", "name a property"),
        ({"Titl": {"a": "title"}}, "names 'Titl', of which nothing is loaded", "Film"),
        ({"Title": 5}, "`map` has 5, which is no name", "--map"),
        (["Title"], "takes a column and what it is, not 'Title'", "--map"),
        ("Title=title", "takes a mapping or a list, not str", "--map"),
        (
            {'split(Title, " ")': "title", "Other": None},
            "a list is mapped to 'title', which holds single values",
            "do not split it",
        ),
    ],
)
def test_c_pip_038_a_mapping_that_does_not_fit_is_refused_by_name(
    graph, tmp_path, map, message, hint
):
    error = load(graph, tmp_path / "f.csv", "code,Title,Other\na,b,c\n", map)
    assert isinstance(error, InputError), error
    assert message in str(error) and hint in str(error.hint)
    assert str(tmp_path / "f.csv") in str(error) or "`map`" in str(error)


def test_a_repeated_header_is_named_by_position(graph, tmp_path):
    error = load(graph, tmp_path / "f.csv", "code,n,n\na,1,2\n", {"n": "votes"})
    assert "is there more than once" in str(error) and "#2 and #3" in error.hint
    map = {"#2": "votes", "#3": None}
    assert load(graph, tmp_path / "f.csv", "code,n,n\na,1,2\n", map) == [{"code": "a", "votes": 1}]


def test_with_several_tables_a_mapping_says_which(graph, tmp_path):
    path = _csv(tmp_path / "f", {"a": ["x"]})
    with pytest.raises(InputError, match="does not say of which table") as caught:
        graph.load(nodes={"Film": path, "City": path}, map={"a": "name"}, mode="overwrite")
    assert "Person:Full Name=name" in str(caught.value.hint)


def test_c_pip_038_a_column_of_a_type_that_a_function_cannot_take_is_refused_before_reading(graph):
    frame = pa.table({"code": ["a"], "rating": [1.5]})
    with pytest.raises(InputError, match="'lower' takes texts, not double"):
        graph.load(frames={"Film": frame}, map={"lower(rating)": "title"}, mode="overwrite")


def test_objects_that_lack_a_member_lack_the_property(graph, tmp_path):
    path = tmp_path / "f.jsonl"
    text = '{"id": "a", "T": "x"}\n{"id": "b"}\n{"id": "c", "T": "x", "title": "y"}\n'
    error = load(graph, path, text, {"id": "code", "T": "title"})
    (problem,) = error.details.get("problems", [error.details])
    assert problem["line"] == 3 and "given twice" in problem["message"]
    found = load(graph, path, text.rsplit("\n", 2)[0], {"id": "code", "T": "title"})
    assert found == [{"code": "a", "title": "x"}, {"code": "b"}]
    error = load(graph, path, text, {"#1": "code"})
    assert "'#1' is a position, which an object does not have" in str(error)


def test_texts_that_are_not_utf8_are_problems_of_their_records(graph):
    broken = pa.array([b"\xff", b"b"]).cast(pa.binary()).view(pa.string())
    with pytest.raises(InputError, match="column 'T' is not UTF-8"):
        graph.load(
            frames={"Film": pa.table({"code": ["a", "b"], "T": broken})},
            map={"lower(T)": "title"},
            mode="overwrite",
        )


# --- graph records ---


def test_the_data_of_graph_records_is_mapped_by_type(graph, tmp_path):
    record = {"type": "Film", "data": {"Code": "A", "T": "x"}}
    other = {"type": "City", "data": {"name": "Graz"}}
    path = tmp_path / "r.jsonl"
    path.write_text(json.dumps(record) + "\n" + json.dumps(other))
    mapping = {"Film": {"lower(Code)": "code", "T": "title"}}
    graph.load(path, map=mapping, mode="overwrite", grammar="strict")
    assert rows(graph) == [{"code": "a", "title": "x"}]
    graph.load(data=path.read_bytes(), map=["Film:lower(Code)=code", "Film:T="], mode="merge")
    for bad, message in (({"T": "title"}, "of which type"), ({"Flm": {"T": "title"}}, "'Flm'")):
        with pytest.raises(InputError, match=message):
            graph.load(path, map=bad, mode="overwrite")
    with pytest.raises(InputError, match="which Likes does not have"):
        graph.load(path, map={"Likes": {"a": "from"}}, mode="overwrite")


def test_a_key_stands_for_a_mapping_too(graph, tmp_path):
    path = _csv(tmp_path / "f", {"code": ["a"], "x": ["1"]})
    options: dict[str, Any] = {"mode": "merge", "operation_id": "k1"}
    first = graph.load(nodes={"Film": path}, map={"x": "title"}, **options)
    again = graph.load(nodes={"Film": path}, map={"x": "title"}, **options)
    assert again.commit == first.commit
    with pytest.raises(OmnigraphError, match="of another input"):
        graph.load(nodes={"Film": path}, map={"x": "country"}, **options)


# --- a mapped load equals loading the rewritten file ---


def _is_name(name: str) -> bool:
    return bool(name) and not name.startswith("#") and name not in ("code", "title", "votes")


NAMES = st.lists(
    st.text("abc XY.:#=", max_size=6).map(str.strip).filter(_is_name),
    min_size=3,
    max_size=3,
    unique=True,
)
CELL = st.text("xyz äß;\"'", max_size=5)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("rewritten")


@given(NAMES, st.lists(st.tuples(CELL, st.integers(0, 99)), max_size=4), st.sampled_from([0, 1, 2]))
def test_c_pip_038_a_mapped_load_equals_loading_the_rewritten_file(
    graph, folder, names, cells, format
):
    table = pa.table(
        {
            names[0]: pa.array([f"k{at}" for at in range(len(cells))], pa.string()),
            names[1]: pa.array([text for text, _ in cells], pa.string()),
            names[2]: pa.array([number for _, number in cells], pa.int64()),
        }
    )
    title = [text.strip().lower() for text, _ in cells]
    rewritten = pa.table(
        {"code": table[0], "title": pa.array(title, pa.string()), "votes": table[2]}
    )
    found = []
    for number, each in enumerate((table, rewritten)):
        path = folder / f"f{number}{('.csv', '.parquet', '.jsonl')[format]}"
        if format == 0:
            pac.write_csv(each, path)
        elif format == 1:
            pq.write_table(each, path)
        else:
            path.write_text("".join(json.dumps(row) + "\n" for row in each.to_pylist()))
        one, two, three = (f"`{name}`" for name in names)
        map = {} if number else {one: "code", f"lower(trim({two}))": "title", three: "votes"}
        graph.load(nodes={"Film": path}, map={"Film": map}, mode="overwrite", engine="local")
        found.append(rows(graph))
    assert found[0] == found[1]
