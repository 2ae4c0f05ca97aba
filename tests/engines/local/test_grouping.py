"""Groups and aggregates, against plain Python."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import omnigraph as og
from omnigraph.engines.local.bindings import BindingValues, Floats
from omnigraph.engines.local.grouping import Grouping, _column, _total
from omnigraph.engines.local.ids import IdSpace, Slots
from omnigraph.errors import InputError
from omnigraph.model.arrow import arrow_type
from omnigraph.model.types import Scalar, ValueType
from omnigraph.query import expressions as ex
from tests.engines.local.columns import KINDS, Kind, columns
from tests.engines.local.examples import EXAMPLES
from tests.engines.local.graphs import knows, load, new_graph, person, rows, with_engine
from tests.support.reference.order import ascending, distinct

SCALARS = {scalar.value: scalar for scalar in Scalar}
NUMBERS = ("I32", "I64", "U32", "U64", "F32", "F64")
ARGUMENT = ex.OutputValue("x", ValueType(Scalar.I32))


@dataclass(frozen=True)
class OneColumn:
    """Values whose every expression is one given column."""

    values: pa.Array

    def column(self, expression: ex.Expression) -> pa.Array:
        return self.values

    def floats(self, expression: ex.Expression) -> Floats | None:
        return BindingValues.floats(cast(BindingValues, self), expression)


def aggregate(
    function: Any,
    is_distinct: bool,
    column: pa.Array,
    group: list[int],
    count: int,
    type: ValueType,
) -> list[Any]:
    """What the engine makes of a column whose rows are in these groups."""
    value = ex.AggregateValue(function, ARGUMENT, is_distinct, type)
    numbers = np.array(group, np.int64)
    sizes = np.bincount(numbers, minlength=count)
    firsts = np.zeros(count, np.int64)
    groups = Grouping(numbers, firsts, sizes)
    made = _column(value, _total(value, cast(BindingValues, OneColumn(column)), groups, None))
    assert made.type == arrow_type(type)
    found: list[Any] = made.to_pylist()
    return found


def grouped(values: list[Any], group: list[int], count: int, is_distinct: bool) -> list[list[Any]]:
    """The values of each group, without nulls."""
    found: list[list[Any]] = [[] for _ in range(count)]
    for value, one in zip(values, group, strict=True):
        if value is not None:
            found[one].append(value)
    return [distinct(each) for each in found] if is_distinct else found


def same(left: Any, right: Any) -> bool:
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, float) and isinstance(right, float):
        both_nan = math.isnan(left) and math.isnan(right)
        return both_nan or math.isclose(left, right, rel_tol=1e-9, abs_tol=1e-9)
    return bool(left == right)


@st.composite
def cases(draw: st.DrawFn, kind: Kind) -> tuple[pa.Array, list[Any], list[int], int]:
    column, values = draw(columns(kind))
    count = draw(st.integers(1, 4))
    size = len(values)
    group = draw(st.lists(st.integers(0, count - 1), min_size=size, max_size=size))
    return column, values, group, count


@pytest.mark.parametrize("name", KINDS)
@EXAMPLES
@given(data=st.data(), is_distinct=st.booleans())
def test_c_qry_056_count_skips_nulls(name: str, data: st.DataObject, is_distinct: bool):
    column, values, group, count = data.draw(cases(KINDS[name]))
    found = aggregate("count", is_distinct, column, group, count, ValueType(Scalar.I64))
    assert found == [len(each) for each in grouped(values, group, count, is_distinct)]


@pytest.mark.parametrize("name", NUMBERS)
@EXAMPLES
@given(data=st.data(), is_distinct=st.booleans())
def test_c_qry_055_sums_and_averages_of_numbers_are_null_of_nothing(
    name: str, data: st.DataObject, is_distinct: bool
):
    # Without the largest numbers, whose sum as floats depends on the order they are added in.
    small = tuple(value for value in KINDS[name].values if not 2**53 < abs(value) < math.inf)
    kind = Kind(KINDS[name].type, small)
    column, values, group, count = data.draw(cases(kind))
    per_group = grouped(values, group, count, is_distinct)
    as_float = ValueType(Scalar.F64, nullable=True)
    sums = aggregate("sum", is_distinct, column, group, count, as_float)
    if not SCALARS[name].is_float:
        exact = aggregate("sum", is_distinct, column, group, count, ValueType(Scalar.I64))
        assert exact == [sum(each) if each else None for each in per_group]
    assert same(sums, [math.fsum(each) if finite(each) else total(each) for each in per_group])
    averages = aggregate("avg", is_distinct, column, group, count, as_float)
    wanted = [
        None if value is None else value / len(each)
        for value, each in zip(sums, per_group, strict=True)
    ]
    assert same(averages, wanted)


def finite(values: list[Any]) -> bool:
    return bool(values) and all(map(math.isfinite, values))


def total(values: list[float]) -> float | None:
    return float(sum(values)) if values else None


@pytest.mark.parametrize("name", [*NUMBERS, "String"])
@EXAMPLES
@given(data=st.data(), is_distinct=st.booleans())
def test_c_qry_055_extremes_keep_their_type(name: str, data: st.DataObject, is_distinct: bool):
    column, values, group, count = data.draw(cases(KINDS[name]))
    per_group = grouped(values, group, count, is_distinct)
    type = ValueType(SCALARS[name], nullable=True)
    least = aggregate("min", is_distinct, column, group, count, type)
    most = aggregate("max", is_distinct, column, group, count, type)
    assert same(least, [min(each, key=ascending, default=None) for each in per_group])
    assert same(most, [max(each, key=ascending, default=None) for each in per_group])


@pytest.mark.parametrize("name", KINDS)
@EXAMPLES
@given(data=st.data(), is_distinct=st.booleans())
def test_collected_values_ascend(name: str, data: st.DataObject, is_distinct: bool):
    column, values, group, count = data.draw(cases(KINDS[name]))
    per_group = grouped(values, group, count, is_distinct)
    type = ValueType(SCALARS[name], is_list=True)
    found = aggregate("collect", is_distinct, column, group, count, type)
    assert same(found, [sorted(each, key=ascending) for each in per_group])


# --- groups of stored rows ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> og.Graph:
    """People of two bios, an empty one, and none; some are deleted, some know somebody."""
    graph = new_graph(Path(tmp_path_factory.mktemp("grouping")))
    bios = ["red", "blue", "", None]
    people = [
        person(f"p{at:02}", age=at % 3 or None, bio=bios[at % 4], tags=[["a"], [], None][at % 3])
        for at in range(40)
    ]
    load(graph, *people, *(knows("p00", f"p{at:02}") for at in range(0, 40, 5)))
    graph.mutate('query q() { delete Person where name = "p07" }')
    graph.mutate('query q() { update Person set { bio: "red" } where name = "p03" }')
    return graph


@pytest.mark.parametrize(
    "item", ["bio", "age", "tags", "name"], ids=["text", "number", "list", "key"]
)
@pytest.mark.parametrize("memory_limit", [None, 1], ids=["cached", "fetched"])
def test_c_qry_053_rows_are_grouped_by_value_and_null_is_one_group(
    graph: og.Graph, item: str, memory_limit: int | None
):
    handle, _ = with_engine(graph, memory_limit=memory_limit)
    everybody = rows(handle, f"match {{ $p: Person }} return {{ $p.{item} as i, $p.age as a }}")
    wanted: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for value, age in everybody:
        wanted[repr(value)][0] += 1
        wanted[repr(value)][1] += age is not None
    found = rows(
        handle,
        f"match {{ $p: Person }} return {{ $p.{item} as i, count(*) as n, count($p.age) as ages }}",
    )
    assert {repr(value): [n, ages] for value, n, ages in found} == wanted
    assert len(found) == len(wanted)


def test_optional_nodes_are_counted_without_their_ids(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    graph = new_graph(tmp_path)
    load(
        graph, *(person(name) for name in "abc"), knows("a", "b"), knows("a", "c"), knows("b", "c")
    )
    text = (
        "match { $p: Person optional { $p knows $o } }"
        " return { count($o) as all, count(distinct $o) as different }"
    )
    assert rows(graph, text) == [(3, 2)]

    def refused(space: IdSpace, slots: Slots) -> pa.Array:
        raise AssertionError("ids were read")

    monkeypatch.setattr(IdSpace, "strings", refused)
    assert rows(graph, text) == [(3, 2)]


@pytest.mark.parametrize("memory_limit", [None, 1], ids=["cached", "fetched"])
def test_rows_without_an_optional_node_are_one_group_with_null(
    graph: og.Graph, memory_limit: int | None
):
    handle, _ = with_engine(graph, memory_limit=memory_limit)
    pattern = "match { $p: Person optional { $p knows $o } }"
    found = rows(handle, f"{pattern} return {{ $o.bio as b, count(*) as n }}")
    each = rows(handle, f"{pattern} return {{ $p.name as p, $o.bio as b }}")
    wanted: dict[Any, int] = defaultdict(int)
    for _, bio in each:
        wanted[bio] += 1
    assert dict(found) == wanted
    assert wanted[None] > 38  # nobody but p00 knows anybody, and p15 has no bio
    assert len(rows(handle, f"{pattern} return {{ $o as o, count(*) as n }}")) == 9


def test_c_qry_054_aggregates_of_nothing(graph: og.Graph):
    nobody = "match { $p: Person $p.age > 99 }"
    assert rows(
        graph,
        f"{nobody} return {{ count(*) as n, sum($p.age) as s, avg($p.age) as a, "
        "min($p.bio) as least, collect($p.bio) as all }",
    ) == [(0, None, None, None, [])]
    assert rows(graph, f"{nobody} return {{ $p.bio as b, count(*) as n }}") == []


@EXAMPLES
@given(data=st.data(), is_distinct=st.booleans())
def test_c_qry_055_sums_of_integers_are_exact_or_refused(data: st.DataObject, is_distinct: bool):
    numbers = st.one_of(st.integers(-(2**63), 2**63 - 1), st.sampled_from([2**62, -(2**62), 1]))
    values = data.draw(st.lists(numbers, max_size=8))
    count = data.draw(st.integers(1, 3))
    size = len(values)
    group = data.draw(st.lists(st.integers(0, count - 1), min_size=size, max_size=size))
    wanted = [sum(each) if each else None for each in grouped(values, group, count, is_distinct)]
    column = pa.array(values, pa.int64())
    if any(one is not None and not -(2**63) <= one < 2**63 for one in wanted):
        with pytest.raises(InputError, match="integer overflow: a sum of about"):
            aggregate("sum", is_distinct, column, group, count, ValueType(Scalar.I64))
    else:
        assert aggregate("sum", is_distinct, column, group, count, ValueType(Scalar.I64)) == wanted
