"""What callers give as input from Python: frames of every library, and what is no input at all."""

from __future__ import annotations

import json
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest

from omnigraph.errors import InputError
from omnigraph.graph import Graph
from omnigraph.loading.formats.arrow_tables import arrow_table


def load(graph: Graph, frame: Any, **options: Any) -> Any:
    return graph.load(frames={"Person": frame}, mode="append", engine="local", **options)


def loaded(graph: Graph) -> list[Any]:
    records = (json.loads(line)["data"] for line in b"".join(graph.export()).splitlines())
    return sorted((each["slug"], each["age"], each["tags"]) for each in records)


class Lazy:
    """A lazy frame as Polars has them, which is not a dependency."""

    __module__ = "polars.lazyframe"

    def collect(self) -> pa.Table:
        return pa.table({"slug": ["ada"], "age": pa.array([1], pa.int32()), "tags": [["x"]]})


class Stream:
    """A relation as DuckDB has them: nothing but a way to get at its rows."""

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return Lazy().collect().__arrow_c_stream__(requested_schema)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Lazy().collect().to_reader(),
        lambda: ds.dataset(Lazy().collect()),
        Stream,
        Lazy,
    ],
)
def test_whatever_speaks_arrow_is_a_frame(graph: Graph, make):
    load(graph, make())
    assert loaded(graph) == [("ada", 1, ["x"])]


def test_views_and_runs_are_read_as_what_they_stand_for(graph: Graph):
    slugs = pa.array(["ada", "bob"], pa.string_view())
    ages = pc.run_end_encode(pa.array([7, 7], pa.int32()))
    tags = pa.array([["x"], None], pa.list_view(pa.string_view()))
    load(graph, pa.table({"slug": slugs, "age": ages, "tags": tags}))
    assert loaded(graph) == [("ada", 7, ["x"]), ("bob", 7, None)]


@pytest.mark.parametrize("view", [pa.list_view, pa.large_list_view])
@pytest.mark.parametrize("item", [pa.string(), pa.string_view()])
def test_views_of_lists_keep_every_item(graph: Graph, view, item):
    tags = [["x", "y"], None, [], ["z"]]
    column = pa.chunked_array([pa.array(tags, view(item)), pa.array(tags, view(item))[1:]])
    load(graph, pa.table({"slug": [f"p{i}" for i in range(7)], "tags": column}))
    assert [found for _, _, found in loaded(graph)] == [*tags, *tags[1:]]


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (pd.DataFrame({"slug": ["a", "b"], "name": ["x", 1]}), "column 'name': "),
        (pd.DataFrame({"slug": ["a", "b"], "tags": [["x"], "y"]}), "column 'tags': cannot mix"),
        (pd.DataFrame([["a", "b"]], columns=["slug", "slug"]), "column 'slug' is there twice"),
        (pd.DataFrame({"slug": ["a"], "age": [1j]}), "column 'age': "),
        (pd.DataFrame({"slug": ["a"], "age": pd.arrays.SparseArray([1])}), "column 'age'"),
        (pd.Series(["a"]), " is a Series"),
        (["a"], " is a list"),
    ],
)
def test_a_frame_that_arrow_cannot_hold_is_refused_by_type_and_column(graph, frame, message):
    with pytest.raises(InputError) as caught:
        load(graph, frame)
    assert caught.value.message.startswith("the frame for 'Person'")
    assert message in caught.value.message and caught.value.hint


def test_stumbles_of_pandas_are_told_with_a_way_out(graph: Graph):
    frame = pd.DataFrame({"slug": ["a", "b"], "age": [1, None]})
    with pytest.raises(InputError, match="column 'age' has type double") as caught:
        load(graph, frame)
    assert 'frame.astype({"age": "Int64"})' in str(caught.value.hint)
    load(graph, frame.astype({"age": "Int64"}))
    by_key = pd.DataFrame({"slug": ["c"], "age": [1]}).astype({"age": "int32"}).set_index("slug")
    with pytest.raises(InputError, match="there is no column 'slug'") as caught:
        load(graph, by_key)
    assert "frame.reset_index()" in str(caught.value.hint)
    with pytest.raises(InputError) as caught:
        load(graph, by_key.rename_axis(None))
    assert 'frame.reset_index(names="slug")' in str(caught.value.hint)
    with pytest.raises(InputError, match="unknown column 'shoe'") as caught:
        load(graph, pa.table({"slug": ["x"], "shoe": [1]}))
    assert "ignore_unknown=True" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"nodes": "people.csv"}, "`nodes` takes a mapping from types, not str"),
        ({"edges": ["a.csv"]}, "`edges` takes a mapping from types, not list"),
        ({"nodes": {"Person": None}}, "`nodes` has None for 'Person', which names no file"),
        ({"nodes": {"Person": []}}, "which names no file"),
        ({"nodes": {"Person": [1]}}, "`nodes` has 1 for 'Person'"),
        ({"frames": [1]}, "`frames` takes a mapping from types, not list"),
        ({"frames": {"Person:node": 1}}, "unknown type 'Person:node'"),
        ({"data": "", "replace_types": ["Nope"]}, "unknown type 'Nope'"),
        ({"data": "", "replace_types": "Person"}, "`replace_types` takes a list of types"),
        ({"data": "", "replace_types": ["Person"], "mode": "merge"}, "cannot empty node:Person"),
    ],
)
def test_what_is_no_input_is_said_so_by_the_name_of_its_argument(graph: Graph, given, message):
    with pytest.raises(InputError, match=message):
        graph.load(**{"mode": "overwrite", "engine": "local", **given})


def test_types_to_replace_may_be_named_without_their_kind(graph: Graph):
    receipt = graph.load(data="", mode="overwrite", replace_types=["Person", "edge:Knows"])
    assert ([each.name for each in receipt.nodes], receipt.edges[0].name) == (["Person"], "Knows")


def test_tables_stay_the_tables_they_are():
    table = pa.table({"slug": ["a"]})
    assert arrow_table(table, "Person") is table


def test_what_is_no_path_is_told_where_it_belongs(graph: Graph):
    with pytest.raises(InputError, match="and this is a list") as refused:
        graph.load([{"type": "Person"}], mode="append")  # type: ignore[arg-type]
    assert "data=" in str(refused.value.hint) and "frames=" in str(refused.value.hint)
