"""The files an input names: found once each, whatever their names, and never left out unsaid."""

from __future__ import annotations

import datetime as dt
import gzip
import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import lance
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import omnigraph
from omnigraph.errors import Conflict, InputError, NotFound
from omnigraph.graph import ErrorOptions, Graph
from omnigraph.loading.pieces import plan_sources
from omnigraph.loading.sources import FileSource, find_files
from tests.commit.loading import catalog, lines, node
from tests.pipeline.conftest import SCHEMA


def load(graph: Graph, *paths: Path | str, **options: Any) -> Any:
    return graph.load(*paths, **{"mode": "append", "engine": "local", **options})


def rows(graph: Graph, type: str = "Person", *names: str) -> list[Any]:
    """The values of some properties, by the first of them."""
    names = names or ("slug",)
    columns = ", ".join(f"$p.{name}" for name in names)
    query = f"query all {{ match {{ $p: {type} }} return {{ {columns} }} }}"
    found = [tuple(row.values()) for row in graph.query(query).to_pylist()]
    return sorted(each[0] if len(names) == 1 else each for each in found)


def people(path: Path, *slugs: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(["slug", *slugs, ""]))
    return path


def found(path: Path | str, table_key: str | None = "node:Person") -> list[str]:
    base = Path(str(path).partition("*")[0])
    while not base.is_dir():
        base = base.parent
    paths = [Path(each.path) for each in find_files(FileSource(str(path), table_key))]
    return [each.relative_to(base).as_posix() for each in paths]


# --- files that hold nothing ---


@pytest.mark.parametrize(
    "name", ["p.parquet", "p.orc", "p.avro", "p.arrow", "p.csv.gz", "p.jsonl.zst", "p.feather"]
)
def test_a_file_without_bytes_is_corrupt_unless_it_is_a_plain_text(name, graph, tmp_path):
    (tmp_path / name).touch()
    with pytest.raises(InputError, match=rf"{name} cannot be read: it has no bytes at all"):
        load(graph, nodes={"Person": tmp_path / name})


def test_compressed_records_without_bytes_are_corrupt_for_every_engine(graph, tmp_path):
    (tmp_path / "a.jsonl.gz").touch()
    with pytest.raises(InputError, match=r"a\.jsonl\.gz cannot be read: it has no bytes at all"):
        load(graph, tmp_path / "a.jsonl.gz")


@pytest.mark.parametrize("name", ["p.csv", "p.tsv", "p.json", "p.jsonl"])
def test_a_plain_text_without_bytes_has_no_rows(name, graph, tmp_path):
    (tmp_path / name).touch()
    assert load(graph, nodes={"Person": tmp_path / name}).to_dict()["inserted"] == 0


# --- Lance datasets ---


def test_a_lance_dataset_that_is_not_there_is_not_found(tmp_path):
    with pytest.raises(NotFound, match=r"no such file: .*none\.lance"):
        find_files(FileSource(str(tmp_path / "none.lance"), "node:Person"))
    (tmp_path / "file.lance").write_text("x")
    with pytest.raises(InputError, match=r"file\.lance cannot be read: it is no dataset"):
        find_files(FileSource(str(tmp_path / "file.lance"), "node:Person"))


def test_errors_of_lance_do_not_show_where_its_source_was_built(tmp_path):
    path = tmp_path / "p.lance"
    lance.write_dataset(pa.table({"slug": ["a"]}), str(path))
    for version in (path / "_versions").iterdir():
        version.write_bytes(b"x" * 40)
    with pytest.raises(InputError, match=r"p\.lance cannot be read: ") as caught:
        plan_sources(
            [FileSource(str(path), "node:Person")], catalog(SCHEMA), slots=1, lines_only=True
        )
    assert ".rs" not in caught.value.message


def test_a_directory_that_is_a_lance_dataset_is_one_whatever_its_name(graph, tmp_path):
    lance.write_dataset(pa.table({"slug": ["a"]}), str(tmp_path / "people"))
    lance.write_dataset(pa.table({"slug": ["b"]}), str(tmp_path / "more" / "b.lance"))
    lance.write_dataset(pa.table({"slug": ["c"]}), str(tmp_path / "more" / "deep" / "c"))
    people(tmp_path / "more" / "d.csv", "d")
    load(graph, nodes={"Person": [tmp_path / "people", tmp_path / "more"]})
    assert rows(graph) == ["a", "b", "c", "d"]
    assert found(tmp_path / "more" / "**") == ["b.lance", "d.csv", "deep/c"]


def test_a_lance_dataset_may_hold_blobs(graph, tmp_path):
    blob = pa.field("photo", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    table = pa.Table.from_arrays(
        [pa.array(["a", "b"]), pa.array([b"\x00\xff", None], pa.large_binary())],
        schema=pa.schema([pa.field("slug", pa.string()), blob]),
    )
    lance.write_dataset(table, str(tmp_path / "p.lance"))
    load(graph, nodes={"Person": tmp_path / "p.lance"})
    assert b'"photo":"base64:AP8="' in b"".join(graph.export())


# --- folders that are columns ---


def partitioned(path: Path, table: pa.Table, *names: str) -> None:
    pq.write_to_dataset(table, str(path), partition_cols=list(names))


def test_folders_of_a_partitioned_table_are_columns(graph, tmp_path):
    table = pa.table(
        {
            "slug": ["a", "b", "c"],
            "name": ["Køb/en=x", "B", None],
            "age": pa.array([1, None, 3], pa.int32()),
            "born": [dt.date(2026, 1, 5), None, dt.date(1969, 12, 31)],
            "active": [True, False, None],
        }
    )
    partitioned(tmp_path / "people", table, "name", "age", "born", "active")
    load(graph, nodes={"Person": tmp_path / "people"})
    expected = [tuple(row.values()) for row in table.to_pylist()]
    assert rows(graph, "Person", *table.column_names) == expected


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("people/*/*.csv", ["Bob"]),
        ("people/name=*", ["Bob"]),
        ("people/**", ["Bob"]),
        ("peop*/name=Bob/a.csv", ["Bob"]),
        ("people/name=Bob/*.csv", [None]),
        ("people/name=Bob", [None]),
        ("people/name=Bob/a.csv", [None]),
    ],
)
def test_folders_below_a_directory_or_a_pattern_are_columns(pattern, names, graph, tmp_path):
    people(tmp_path / "people" / "name=Bob" / "a.csv", "a")
    load(graph, nodes={"Person": str(tmp_path / pattern)})
    assert [name for _, name in rows(graph, "Person", "slug", "name")] == names


@pytest.mark.parametrize("suffix", ["json", "csv", "parquet"])
def test_a_folder_gives_a_required_property(suffix, tmp_path):
    graph = omnigraph.init(tmp_path / "g.omni", "node N { k: String @key  size: I32  on: Date }")
    folder = tmp_path / "in" / "size=7" / "on=2026-01-05"
    folder.mkdir(parents=True)
    if suffix == "parquet":
        pq.write_table(pa.table({"k": ["a"]}), folder / "n.parquet")
    else:
        text = {"json": '{"k": "a"}\n', "csv": "k\na\n"}
        (folder / f"n.{suffix}").write_text(text[suffix])
    load(graph, nodes={"N": tmp_path / "in"})
    assert rows(graph, "N", "k", "size", "on") == [("a", 7, dt.date(2026, 1, 5))]


@pytest.mark.parametrize("suffix", ["json", "csv", "parquet"])
def test_a_column_beside_its_folder_says_the_same_or_is_refused(suffix, graph, tmp_path):
    def write(name: str, slug: str, age: int) -> None:
        path = tmp_path / "in" / "age=7" / f"{name}.{suffix}"
        path.parent.mkdir(parents=True, exist_ok=True)
        if suffix == "parquet":
            pq.write_table(pa.table({"slug": [slug], "age": [age]}), path)
        elif suffix == "csv":
            path.write_text(f"slug,age\n{slug},{age}\n")
        else:
            path.write_text(f'{{"slug": "{slug}", "age": {age}}}\n')

    write("a", "a", 7)
    load(graph, nodes={"Person": tmp_path / "in"})
    assert rows(graph, "Person", "slug", "age") == [("a", 7)]
    write("b", "b", 8)
    with pytest.raises(
        InputError, match=rf"b\.{suffix}.*is number 8, and number 7 in the name of its folder"
    ):
        load(graph, nodes={"Person": tmp_path / "in"}, mode="merge")


def test_a_folder_that_is_no_property_is_refused_or_left_out(graph, tmp_path):
    people(tmp_path / "in" / "run=5" / "nam=Bob" / "a.csv", "a")
    with pytest.raises(InputError, match=r"a\.csv: Person: the folder 'run=5' is no property"):
        load(graph, nodes={"Person": tmp_path / "in"})
    load(graph, nodes={"Person": tmp_path / "in"}, errors=ErrorOptions(ignore_unknown=True))
    assert rows(graph) == ["a"]


def test_a_folder_with_a_value_that_does_not_fit_is_refused_once(graph, tmp_path):
    people(tmp_path / "in" / "age=old" / "a.csv", "a", "b")
    with pytest.raises(InputError, match=r"the folder 'age=old': .*expects Int32") as caught:
        load(graph, nodes={"Person": tmp_path / "in"})
    assert "whole number" in (caught.value.hint or "")
    people(tmp_path / "two" / "age=1" / "age=2" / "a.csv", "a")
    with pytest.raises(InputError, match="'age' is named by two folders"):
        load(graph, nodes={"Person": tmp_path / "two"})


def test_folders_belong_to_the_content_of_a_load(graph, tmp_path):
    people(tmp_path / "1" / "name=Bob" / "a.csv", "a")
    people(tmp_path / "2" / "name=Cid" / "a.csv", "a")
    load(graph, nodes={"Person": tmp_path / "1"}, operation_id="night")
    with pytest.raises(Conflict, match="another input"):
        load(graph, nodes={"Person": tmp_path / "2"}, operation_id="night")


# --- names ---


@pytest.mark.parametrize("name", ["data[1].csv", "what?.csv", "a*b.csv"])
def test_a_file_whose_name_looks_like_a_pattern_is_itself(name, tmp_path):
    people(tmp_path / name, "a")
    people(tmp_path / "data1.csv", "b")
    assert [Path(each.path).name for each in find_files(FileSource(str(tmp_path / name), "n"))] == [
        name
    ]


def test_a_directory_with_files_that_do_not_say_what_they_are_is_refused(tmp_path):
    people(tmp_path / "a.csv", "a")
    people(tmp_path / "part-0000", "b")
    people(tmp_path / "deep" / "x.txt", "c")
    people(tmp_path / "_SUCCESS")
    people(tmp_path / ".part.crc")
    with pytest.raises(InputError, match=r"2 files .* do not say what they are: deep/x\.txt") as e:
        find_files(FileSource(str(tmp_path), "node:Person"))
    assert "a pattern" in (e.value.hint or "")
    assert found(tmp_path / "*.csv") == ["a.csv"]
    # Graph records may lie beside their schema.
    (tmp_path / "a.csv").unlink()
    (tmp_path / "r.jsonl").write_bytes(lines(node("Person", slug="a")))
    assert found(tmp_path, None) == ["r.jsonl"]


def test_a_pattern_passes_over_notes_unless_it_asks_for_them(tmp_path):
    people(tmp_path / "a.csv", "a")
    people(tmp_path / "_SUCCESS")
    people(tmp_path / "_old" / "b.csv", "b")
    assert found(tmp_path / "*") == ["a.csv"]
    assert found(tmp_path / "**" / "*.csv") == ["a.csv"]
    assert found(tmp_path / "_old" / "*.csv") == ["b.csv"]


def test_suffixes_may_have_capital_letters(graph, tmp_path):
    (tmp_path / "A.CSV.GZ").write_bytes(gzip.compress(b"slug\na\n"))
    (tmp_path / "B.Tsv").write_text("slug\tname\nb\tB\n")
    (tmp_path / "R.JSONL.GZ").write_bytes(gzip.compress(lines(node("Person", slug="c"))))
    load(graph, nodes={"Person": [tmp_path / "A.CSV.GZ", tmp_path / "B.Tsv"]})
    load(graph, tmp_path / "R.JSONL.GZ")
    assert rows(graph, "Person", "slug", "name") == [("a", None), ("b", "B"), ("c", None)]


def test_linked_directories_are_followed_once(tmp_path):
    people(tmp_path / "in" / "z.csv", "z")
    people(tmp_path / "other" / "deep" / "b.csv", "b")
    (tmp_path / "in" / "linked").symlink_to(tmp_path / "other")
    (tmp_path / "in" / "loop").symlink_to(tmp_path / "in")
    (tmp_path / "other" / "back").symlink_to(tmp_path / "in")
    (tmp_path / "in" / "same.csv").symlink_to(tmp_path / "in" / "z.csv")
    expected = ["linked/deep/b.csv", "z.csv"]
    names = [
        os.path.relpath(each.name or "", tmp_path / "in")
        for pattern in ("in", "in/**", "in/**/*.csv")
        for each in find_files(FileSource(str(tmp_path / pattern), "node:Person"))
    ]
    assert names == expected * 3


def test_relative_paths_and_patterns_name_the_same_files(tmp_path, monkeypatch):
    people(tmp_path / "in" / "name=Bob" / "a.csv", "a")
    monkeypatch.chdir(tmp_path / "in")
    for path in (".", "**", "*", "*/a.csv", "**/*.csv", str(tmp_path / "in" / "**")):
        (file,) = find_files(FileSource(path, "node:Person"))
        assert Path(file.path) == tmp_path / "in" / "name=Bob" / "a.csv", path
        assert file.folder_values == (("name", "Bob"),), path


def test_tables_with_a_log_are_not_loaded_by_their_files(tmp_path):
    people(tmp_path / "t" / "a.csv", "a")
    people(tmp_path / "t" / "_delta_log" / "0.json")
    with pytest.raises(InputError, match=r"t holds a Delta table"):
        find_files(FileSource(str(tmp_path / "t"), "node:Person"))


# --- the same file twice ---


def test_a_file_that_is_given_twice_is_refused_by_name(graph, tmp_path):
    path = people(tmp_path / "in" / "same.csv", "a")
    (tmp_path / "link.csv").symlink_to(path)
    for given in ([path, path], [path, tmp_path / "in"], [tmp_path / "in", tmp_path / "*.csv"]):
        with pytest.raises(InputError, match=r"same\.csv is given twice"):
            load(graph, nodes={"Person": given})
    deep = people(tmp_path / "in" / "name=Bob" / "b.csv", "b")
    with pytest.raises(InputError, match=r"b\.csv is given twice"):
        load(graph, nodes={"Person": [tmp_path / "in", deep]})


def test_records_that_are_given_twice_are_refused_by_every_engine(graph, tmp_path):
    path = tmp_path / "r.jsonl"
    path.write_bytes(lines(node("Note", text="x")))
    for engine in ("local", "spark"):
        with pytest.raises(InputError, match=r"r\.jsonl is given twice"):
            plan_or_load(graph, engine, path)


def plan_or_load(graph: Graph, engine: str, path: Path) -> None:
    if engine == "local":
        load(graph, path, str(path.parent / "*.jsonl"))
    else:
        sources = [FileSource(str(path)), FileSource(str(path.parent / "*.jsonl"))]
        plan_sources(sources, catalog(SCHEMA), slots=1, lines_only=True)


def test_one_file_may_hold_rows_of_two_types(graph, tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("id,text,slug\na,t,a\n")
    load(graph, nodes={"Person": path, "Note": path}, errors=ErrorOptions(ignore_unknown=True))
    assert (rows(graph), rows(graph, "Note", "text")) == (["a"], ["t"])


# --- what may not be read ---


@pytest.fixture
def nobody() -> Iterator[Path]:
    """A directory of somebody who has no rights of an administrator, while the test runs."""
    with TemporaryDirectory() as directory:
        Path(directory).chmod(0o777)
        if os.geteuid():
            yield Path(directory)
            return
        os.seteuid(65534)
        try:
            yield Path(directory)
        finally:
            os.seteuid(0)


@pytest.mark.parametrize("asked", ["", "/*/*.csv", "/*/b.csv", "/**/*.csv"])
def test_a_directory_that_may_not_be_read_is_never_passed_over(asked, nobody):
    people(nobody / "open" / "a.csv", "ada")
    people(nobody / "shut" / "b.csv", "bob")
    (nobody / "shut").chmod(0)
    try:
        with pytest.raises(
            InputError, match=r"shut\S* cannot be read: permission denied"
        ) as caught:
            find_files(FileSource(f"{nobody}{asked}", "node:Person"))
    finally:
        (nobody / "shut").chmod(0o700)
    assert f"`ls -ld {nobody}/shut" in str(caught.value.hint)


@pytest.mark.parametrize("name", ["p.csv", "p.parquet"])
def test_a_file_that_may_not_be_read_says_so_by_the_name_it_was_given(name, nobody, monkeypatch):
    monkeypatch.chdir(nobody)
    pq.write_table(pa.table({"slug": ["ada"]}), "p.parquet")
    people(nobody / "p.csv", "ada")
    Path(name).chmod(0)
    monkeypatch.setattr("omnigraph.loading.pieces.WHOLE_BYTES_MAX", 0)
    types = catalog(SCHEMA)
    with pytest.raises(InputError) as caught:
        plan_sources([FileSource(name, "node:Person")], types, slots=1, lines_only=True)
    assert caught.value.message == f"{name} cannot be read: permission denied"
    assert "ls -ld" in str(caught.value.hint)


def test_a_pattern_finds_what_it_names_and_no_hidden_file(tmp_path):
    for name in ("a1/p.csv", "a2/p.csv", "a2/.p.csv", "b/p.csv", "a3.csv"):
        people(tmp_path / name, "ada")
    assert found(f"{tmp_path}/a*/p.csv") == ["a1/p.csv", "a2/p.csv"]
    assert found(f"{tmp_path}/a[23]*/*") == ["a2/p.csv"]
    assert found(f"{tmp_path}/a?") == ["a1/p.csv", "a2/p.csv"]
    assert found(f"{tmp_path}/a2/.*") == [".p.csv"]


def test_names_that_say_nothing_are_told_which_ones_do(tmp_path):
    (tmp_path / "people").write_text("slug\n")
    with pytest.raises(InputError, match="does not say what it is") as caught:
        find_files(FileSource(str(tmp_path / "people"), "node:Person"))
    assert str(caught.value.hint).endswith(".feather")
