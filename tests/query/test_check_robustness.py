"""Whatever parses is either planned or refused with a place; nothing else happens."""

from __future__ import annotations

import pickle

from hypothesis import given
from hypothesis import strategies as st

from omnigraph.errors import QueryParseError, QueryTypeError
from omnigraph.query import plan
from omnigraph.query.compile import check_query
from omnigraph.query.explain import explain
from omnigraph.query.lint import describe_operation, lint_queries
from omnigraph.syntax import query_ast as ast
from omnigraph.syntax.query_parser import parse_query_file
from tests.query.library import catalog
from tests.support.budgets import MANY

NAMES = st.sampled_from(["a", "b", "c", "w", "r", "p", "q", "l", "v", "x", "_"])
TYPES = st.sampled_from(["Author", "Book", "Shop", "Review", "Cites", "Named", "Wrote", "Zzz"])
PROPERTIES = st.sampled_from(
    [
        *("isbn", "title", "blurb", "genre", "pages", "sold", "printed", "weight", "price"),
        *("available", "released", "updated", "tags", "grades", "cover", "vec", "name", "handle"),
        *("role", "share", "contract", "since", "nodes", "length", "id", "from", "to", "text"),
    ]
)
EDGES = st.sampled_from(["wrote", "cites", "knows", "contains", "sells", "about", "zzz", "in"])
LITERALS = st.sampled_from(
    [
        *("0", "1", "-1", "2.5", "9223372036854775807", '"x"', '"poetry"', '""', "true", "false"),
        *('date("2031-04-09")', 'datetime("2031-04-09T07:30:00Z")', "[]", "[1, 2]", "[0.5, 1]"),
        *('["a"]', "[0.1, 0.2, 0.3, 0.4]", "[[1]]", '[1, "x"]', '"base64:AA=="', '"s3://x"'),
    ]
)
SCALARS = st.sampled_from(
    [
        *("String", "Bool", "I32", "I64", "U32", "U64", "F32", "F64", "Date", "DateTime", "Blob"),
        *("[String]", "[I64]", "[F32]", "[Date]", "[Blob]", "Vector(4)", "Vector(2)", "Vector(0)"),
    ]
)
COMPARISONS = st.sampled_from(["=", "!=", "<", "<=", ">", ">=", "contains", "starts_with"])
WORDS = st.sampled_from(["n", "m", "t", "null", "title", "count", "b"])

FITTING = st.sampled_from(
    [
        *("$b.isbn", "$b.title", "$b.genre", "$b.pages", "$b.printed", "$b.weight", "$b.price"),
        *("$b.released", "$b.updated", "$b.available", "$b.tags", "$b.vec", "$c.title", "$c.sold"),
        *("$a.name", "$a.born", "$a.fame", "$w.role", "$w.share", "$r.length", "$r.nodes"),
    ]
)
"""Properties that exist where the longest start is used."""
variables = NAMES.map("${}".format)
stray_refs = st.builds("${}.{}".format, NAMES, PROPERTIES)
property_refs = st.one_of(FITTING, FITTING, FITTING, FITTING, stray_refs)
leaves = st.one_of(property_refs, property_refs, variables, LITERALS, WORDS, st.just("now()"))


def calls(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    ranks = st.one_of(
        st.builds("nearest({}, {})".format, property_refs, leaves),
        st.builds("bm25({}, {})".format, leaves, leaves),
    )
    return st.one_of(
        st.builds("{} {} {}".format, inner, st.sampled_from("+-*/"), inner),
        inner.map("({})".format),
        st.builds("{}({}, {})".format, st.sampled_from(["search", "match_text"]), inner, inner),
        st.builds("fuzzy({}, {}, {})".format, property_refs, leaves, leaves),
        ranks,
        st.builds("rrf({}, {})".format, ranks, ranks),
        st.builds("rrf({}, {}, {})".format, ranks, ranks, leaves),
        st.builds(
            "{}({})".format,
            st.sampled_from(["count", "sum", "avg", "min", "max", "collect", "count"]),
            inner,
        ),
        st.builds("count(distinct {})".format, inner),
        st.just("count(*)"),
        st.builds(
            "{}({})".format, st.sampled_from(["lower", "upper", "length", "abs", "round"]), inner
        ),
        st.builds("round({}, {})".format, inner, inner),
        st.builds("coalesce({}, {})".format, inner, inner),
        st.builds(
            "date_part({}, {})".format, st.sampled_from(['"year"', '"hour"', '"x"', "$p"]), inner
        ),
        variables.map("{}.*".format),
    )


expressions = st.recursive(leaves, calls, max_leaves=5)
FITTING_FILTERS = st.sampled_from(
    [
        *(
            "$b.pages > 3",
            '$b.title contains "x"',
            "$b.weight = 0.1",
            "$p in [1, 2]",
            "$b.tags contains $q",
        ),
        *("$a.born is null", "search($b.title, $q)", "$w.share < $b.price", "$c is not null"),
    ]
)
filters = st.one_of(
    st.builds("{} {} {}".format, expressions, COMPARISONS, expressions),
    st.builds("{} in {}".format, expressions, st.one_of(LITERALS, variables, property_refs)),
    st.builds("{} is {}null".format, expressions, st.sampled_from(["", "not "])),
)
pairs = st.builds("{}: {}".format, PROPERTIES, st.one_of(LITERALS, variables, st.just("now()")))
bounds = st.sampled_from(["", "", "", "{1,3}", "{2,2}", "{0,1}", "{3,1}", "{1,}", "{1,1}"])
hops = st.builds(
    "{} {}{}{} {}{}".format,
    variables,
    st.sampled_from(["", "", "", "$w:", "$_:", "$b:"]),
    st.one_of(EDGES, EDGES.map("<{}>".format)),
    bounds,
    variables,
    st.sampled_from(["", "", "", " via $r", " via $_", " via $a"]),
)
bindings = st.builds(
    lambda v, t, p: f"{v}: {t}" + (f" {{ {', '.join(p)} }}" if p else ""),
    variables,
    TYPES,
    st.lists(pairs, max_size=2),
)
clauses = st.recursive(
    st.one_of(bindings, hops, filters, FITTING_FILTERS, FITTING_FILTERS),
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map(lambda found: f"not {{ {'  '.join(found)} }}"),
        st.lists(inner, min_size=1, max_size=3).map(
            lambda found: f"optional {{ {'  '.join(found)} }}"
        ),
        st.lists(inner, min_size=1, max_size=3).map(
            lambda found: f"any {{ {'  '.join(found)}  all {{ {found[0]} }} }}"
        ),
    ),
    max_leaves=4,
)
LONGEST = "$a: Author $a $w:wrote $b $b cites{1,2} $c via $r"
START = st.sampled_from(
    [
        *(LONGEST, LONGEST, LONGEST, LONGEST),
        "$b: Book",
        "$a: Author optional { $a wrote $b } $c: Book",
        "$b: Review $x: Shop",
    ]
)
ALIASES = ("n", "m", "t")
FITTING_KEYS = st.sampled_from(["n", "m", "$b.title", "$a.born", "bm25($b.title, $q)"])
keys = st.builds(
    "{} {}".format,
    st.one_of(FITTING_KEYS, FITTING_KEYS, expressions),
    st.sampled_from(["", "asc", "desc"]),
)
counts = st.sampled_from(["0", "7", "$p", "$l", "$b"])


@st.composite
def reads(draw: st.DrawFn) -> str:
    body = [draw(START), *draw(st.lists(clauses, max_size=3))]
    distinct = draw(st.sampled_from(["", "", "distinct "]))
    text = f"match {{ {'  '.join(body)} }} return {distinct}{{ "
    shown = draw(st.lists(expressions, min_size=1, max_size=3))
    named = [f"{item} as {alias}" for item, alias in zip(shown, ALIASES, strict=False)]
    text += ", ".join(draw(st.sampled_from([named, named, named, shown]))) + " }"
    if draw(st.booleans()):
        fitting = st.sampled_from(
            ["n > 1", "n is null", "m = n", "count(*) > 1", "max($b.pages) > n"]
        )
        tested = draw(st.lists(st.one_of(fitting, fitting, filters), min_size=1, max_size=2))
        text += f" having {{ {'  '.join(tested)} }}"
    if draw(st.booleans()):
        text += f" order {{ {', '.join(draw(st.lists(keys, min_size=1, max_size=2)))} }}"
    if draw(st.booleans()):
        text += f" limit {draw(counts)}"
    if draw(st.booleans()):
        text += f" offset {draw(counts)}"
    return text


tests = st.one_of(
    st.builds("{} {} {}".format, PROPERTIES, st.sampled_from(["=", "<", "!="]), leaves),
    st.builds("{} in {}".format, PROPERTIES, st.one_of(LITERALS, variables)),
    st.builds("{} is {}null".format, PROPERTIES, st.sampled_from(["", "not "])),
)
predicates = st.recursive(
    tests,
    lambda inner: st.builds("( {} {} {} )".format, inner, st.sampled_from(["and", "or"]), inner),
    max_leaves=3,
)
assignments = st.lists(
    st.one_of(pairs, PROPERTIES.map("{}: null".format)), min_size=1, max_size=4
).map(", ".join)
BOOK = 'isbn: "i", title: "t", genre: "poetry", '
statements = st.one_of(
    st.builds("insert {} {{ {} }}".format, TYPES, assignments),
    assignments.map(f"insert Book {{{{ {BOOK} {{}} }}}}".format),
    assignments.map('insert Wrote {{ from: "a", to: $p, {} }}'.format),
    st.builds("update {} set {{ {} }} where {}".format, TYPES, assignments, predicates),
    st.builds("delete {} where {}".format, TYPES, predicates),
)
writes = st.lists(statements, min_size=1, max_size=2).map("  ".join)
FITTING_PARAMETERS = "$p: I32, $q: String, $l: [String], $v: Vector(4)"
parameters = st.one_of(
    st.just(FITTING_PARAMETERS),
    st.just(FITTING_PARAMETERS),
    st.lists(
        st.builds("${}: {}{}".format, NAMES, SCALARS, st.sampled_from(["", "?"])), max_size=3
    ).map(", ".join),
)
queries = st.builds("query q({}) {{ {} }}".format, parameters, st.one_of(reads(), reads(), writes))


@given(queries)
@MANY
def test_what_parses_is_planned_or_refused_at_a_place(text: str):
    try:
        file = parse_query_file(text)
    except QueryParseError:
        return
    (query,) = file.queries
    before = repr(catalog())
    try:
        compiled = check_query(query, file.source, catalog())
    except QueryTypeError as error:
        assert error.position is not None
        assert error.position.byte_end > error.position.byte_start
        assert error.render()
        assert error.message.startswith("type error: ")
    else:
        is_read = isinstance(query.body, ast.ReadBody)
        assert isinstance(compiled, plan.ReadPlan if is_read else plan.MutationPlan)
        assert check_query(query, file.source, catalog()) == compiled
        assert pickle.loads(pickle.dumps(compiled)) == compiled
        assert hash(compiled) == hash(pickle.loads(pickle.dumps(compiled)))
        lines = explain(compiled).splitlines()
        assert lines[0].startswith(("read q", "mutation q"))
        described = describe_operation(compiled, catalog())
        assert len(described.result) == (len(compiled.columns) if is_read else 0)  # type: ignore[union-attr]
    assert repr(catalog()) == before
    lint_queries(text, catalog())
