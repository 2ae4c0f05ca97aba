"""A query text has limits, plans are kept by bytes, and compiling takes time in proportion."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from omnigraph.errors import LimitExceeded
from omnigraph.query import compile as compile_module
from omnigraph.query import expressions as ex
from omnigraph.query.compile import ByteCache, QueryCompiler, compile_query
from omnigraph.query.explain import explain
from omnigraph.query.plan import ReadPlan
from omnigraph.syntax.query_expressions import (
    CLAUSES_MAX,
    TEXT_BYTES_MAX,
    TOKENS_MAX,
    VARIABLES_MAX,
)
from omnigraph.syntax.query_read import STAGES_MAX
from tests.query.library import catalog


def query(clauses: str, items: str = "$b0.title") -> str:
    return f"query q() {{ match {{ $b0: Book {clauses} }} return {{ {items} }} }}"


def bindings(count: int) -> str:
    return query(" ".join(f"$b{n}: Book {{ pages: {n} }}" for n in range(1, count)))


def hops(count: int) -> str:
    return query(" ".join(f"$b{n} cites $b{n + 1}" for n in range(count)))


def staged(count: int) -> str:
    return f"query q() {{ match {{ $b0: Book }} {'with { $b0 } ' * count} return {{ $b0.title }} }}"


TOO_MUCH: dict[str, tuple[str, str, int]] = {
    "bytes": (query(f'$b0.title = "{"x" * TEXT_BYTES_MAX}"'), "bytes", TEXT_BYTES_MAX),
    "tokens": (query(f"$b0.pages in [{'1,' * TOKENS_MAX}1]"), "tokens", TOKENS_MAX),
    "filters": (query("$b0.pages > 1 " * CLAUSES_MAX), "clauses", CLAUSES_MAX),
    "nested": (query(f"not {{ {'$b0 cites $c ' * CLAUSES_MAX} }}"), "clauses", CLAUSES_MAX),
    "items": (query("", "$b0.pages " * (CLAUSES_MAX + 1)), "clauses", CLAUSES_MAX),
    "bindings": (bindings(VARIABLES_MAX + 1), "variables", VARIABLES_MAX),
    "anonymous": (query("$b0 cites $_ " * VARIABLES_MAX), "variables", VARIABLES_MAX),
    "stages": (staged(STAGES_MAX + 1), "stages", STAGES_MAX),
    "statements": (
        f"query q() {{ {'delete Book where pages = 1 ' * CLAUSES_MAX} }}",
        "clauses",
        CLAUSES_MAX,
    ),
}


@pytest.mark.parametrize("case", TOO_MUCH)
def test_a_text_beyond_a_limit_is_refused_with_that_limit(case: str):
    text, what, limit = TOO_MUCH[case]
    with pytest.raises(LimitExceeded) as caught:
        compile_query(text, catalog())
    assert what in caught.value.details["resource"]
    assert caught.value.details["limit"] == limit
    assert caught.value.details["actual"] > limit
    assert "parameters" in (caught.value.hint or "")


def test_each_query_of_a_text_is_counted_on_its_own():
    half = "$b0.pages > 1 " * (CLAUSES_MAX // 2)
    text = query(half) + query(half).replace("query q", "query r")
    assert compile_query(text, catalog(), "r").name == "r"


# --- near-linear ----------------------------------------------------------------------------------


def work_of(text: str) -> int:
    """Function calls while a text is compiled: time without a clock."""
    import sys

    calls = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    known = catalog()
    sys.setprofile(count)
    try:
        compile_query(text, known)
    finally:
        sys.setprofile(None)
    return calls


@pytest.mark.parametrize("shape", [bindings, hops], ids=["bindings", "hops"])
def test_twice_the_clauses_take_about_twice_the_work(shape: Callable[[int], str]):
    small, large = work_of(shape(100)), work_of(shape(200))
    assert large < 2.5 * small


def test_variables_read_outside_of_a_block_are_found_once(monkeypatch: pytest.MonkeyPatch):
    asked = 0
    original = ex.variables_of

    def counted(expression: ex.Expression) -> frozenset[str]:
        nonlocal asked
        asked += 1
        return original(expression)

    monkeypatch.setattr(ex, "variables_of", counted)
    deep = "$b0.pages > 1"
    for _ in range(30):
        deep = f"not {{ $b0.pages > 1 {deep} }}"
    compile_query(query(deep), catalog())
    assert asked < 150, "at every level anew, it would be a thousand"


# --- plans by bytes -------------------------------------------------------------------------------


def test_large_texts_do_not_pin_memory(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(compile_module, "PLANS_BYTES_MAX", 1 << 20)
    compiler = QueryCompiler(catalog())
    for n in range(60):
        compiler.compile(query(f'$b0.title = "{n:04}{"x" * 400}"'))
    assert compiler._plans.used <= 1 << 20
    assert 10 < len(compiler._plans) < 60
    whole = query(f'$b0.title = "{"x" * 100_000}"')
    plan = compiler.compile(whole)
    assert plan.memory_bytes > 1 << 20
    assert compiler.compile(whole) is not plan, "it would have dropped all others"


def test_a_plan_knows_about_how_much_it_takes():
    small, large = (compile_query(bindings(n), catalog()) for n in (2, 200))
    assert isinstance(large, ReadPlan)
    assert large.memory_bytes > 100 * small.memory_bytes / 2
    assert compile_query(bindings(2), catalog()) == small


def test_the_entries_used_last_stay():
    cache: ByteCache[str, int] = ByteCache(100)
    for name in "abcd":
        cache.put(name, ord(name), 25)
    assert cache.get("a") == ord("a")
    cache.put("e", ord("e"), 25)
    assert [cache.get(name) is None for name in "abcde"] == [False, True, False, False, False]
    cache.put("a", 1, 5)
    assert (cache.get("a"), cache.used, len(cache)) == (1, 80, 4)


def test_c_qry_084_as_many_stages_as_there_may_be_compile_and_explain():
    compiled = compile_query(staged(STAGES_MAX), catalog())
    assert explain(compiled).count("With b0 = $b0") == STAGES_MAX
