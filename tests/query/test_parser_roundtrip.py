"""Random syntax trees: printed and parsed they come back, in any layout, with true positions."""

import datetime as dt
import random
import re
from dataclasses import fields, is_dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.model.types import SCALAR_NAMES, RecordsType, Scalar, ValueType
from omnigraph.syntax import query_ast as ast
from omnigraph.syntax.query_expressions import QueryStream
from omnigraph.syntax.query_parser import parse_query_file
from omnigraph.syntax.tokens import Source, Span, TokenKind
from tests.query.printing import (
    print_clause,
    print_predicate,
    print_query,
    print_query_file,
)
from tests.query.printing_expressions import print_expression

NOWHERE = st.just(Span(0, 0))
LAYOUTS = st.integers(0, 2**32).map(random.Random)
SEPARATORS = [" ", "\n", "\t", "\r\n", "  ", " // note\n", " /* note */", " /**/ "]

# --- trees ----------------------------------------------------------------------------------------

# Mostly words with a meaning somewhere: they must not be mistaken for it anywhere else.
NAMES = """
x name optional any all not distinct via in is null having offset order limit return match as asc
desc and or where set contains starts_with lower count now date query insert if case else matches
ends_with with per
"""
WORDS = st.sampled_from(NAMES.split())
TYPES = st.sampled_from(["A", "Person", "T_1"])
INTEGERS = st.integers(-(2**63), 2**63 - 1)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
MOMENTS = st.datetimes(timezones=st.just(dt.UTC)).map(
    lambda moment: moment.replace(microsecond=moment.microsecond // 1000 * 1000)
)

variables = st.builds(ast.Variable, st.one_of(st.just("_"), WORDS), NOWHERE)
literals = st.builds(
    ast.Literal, st.one_of(TEXTS, INTEGERS, FLOATS, st.booleans(), st.dates(), MOMENTS), NOWHERE
)
list_literals = st.recursive(
    st.builds(ast.ListLiteral, st.lists(literals, max_size=3).map(tuple), NOWHERE),
    lambda inner: st.builds(
        ast.ListLiteral, st.lists(literals | inner, max_size=3).map(tuple), NOWHERE
    ),
    max_leaves=3,
)
properties = st.builds(ast.PropertyRef, variables, WORDS, NOWHERE, NOWHERE)
nows = st.builds(ast.Now, NOWHERE)
leaves = st.one_of(
    literals,
    list_literals,
    variables,
    properties,
    st.builds(ast.EntityRef, variables, NOWHERE),
    st.builds(ast.AliasRef, WORDS, NOWHERE),
    nows,
    st.deferred(lambda: block_values),
)

ARITIES = {
    "search": (2, 2),
    "match_text": (2, 2),
    "fuzzy": (2, 3),
    "bm25": (2, 2),
    "lower": (1, 1),
    "length": (1, 1),
    "coalesce": (2, 4),
    "round": (1, 2),
    "date_part": (2, 2),
    "replace": (3, 3),
    "days": (1, 1),
}


def calls(kind: type, functions: list[str], inner: st.SearchStrategy[Any]) -> Any:
    return st.sampled_from(functions).flatmap(
        lambda name: st.builds(
            kind,
            st.just(name),
            st.lists(inner, min_size=ARITIES[name][0], max_size=ARITIES[name][1]).map(tuple),
            NOWHERE,
        )
    )


def search_calls(inner: st.SearchStrategy[Any]) -> Any:
    bm25 = calls(ast.SearchCall, ["bm25"], inner)
    nearest = st.builds(ast.SearchCall, st.just("nearest"), st.tuples(properties, inner), NOWHERE)
    arm = bm25 | nearest
    arms = st.tuples(arm, arm) | st.tuples(arm, arm, inner)
    return st.one_of(
        calls(ast.SearchCall, ["search", "match_text", "fuzzy", "bm25"], inner),
        nearest,
        st.builds(ast.SearchCall, st.just("rrf"), arms, NOWHERE),
    )


def conditions(inner: st.SearchStrategy[Any]) -> Any:
    """Conditions of a conditional; operands of one operator never have the same one."""
    tests = st.one_of(
        st.builds(ast.Filter, inner, st.sampled_from(["=", "<", "contains"]), inner, NOWHERE),
        st.builds(ast.NullTest, inner, st.booleans(), NOWHERE),
    )
    several = st.lists(tests, min_size=2, max_size=3)
    either = st.builds(ast.BooleanCondition, st.just("or"), several.map(tuple), NOWHERE)
    both = st.lists(tests | either, min_size=2, max_size=2).map(tuple)
    return st.one_of(tests, either, st.builds(ast.BooleanCondition, st.just("and"), both, NOWHERE))


def compound(inner: st.SearchStrategy[Any]) -> Any:
    return st.one_of(
        st.builds(ast.Arithmetic, st.sampled_from("+-*/%"), inner, inner, NOWHERE),
        calls(
            ast.FunctionCall,
            ["lower", "length", "coalesce", "round", "date_part", "replace", "days"],
            inner,
        ),
        st.builds(ast.ListItem, properties, inner, NOWHERE),
        st.builds(
            ast.Conditional,
            st.lists(st.tuples(conditions(inner), inner), min_size=1, max_size=2).map(tuple),
            st.none() | inner,
            NOWHERE,
        ),
        search_calls(inner),
        st.builds(
            ast.Aggregate,
            st.sampled_from([name for name in ast.AGGREGATE_FUNCTIONS if name != "percentile"]),
            inner,
            st.booleans(),
            NOWHERE,
        ),
        st.builds(ast.Aggregate, st.just("percentile"), inner, st.booleans(), NOWHERE, literals),
        st.builds(ast.Aggregate, st.just("count"), st.none(), st.just(False), NOWHERE),
    )


expressions = st.recursive(leaves, compound, max_leaves=6)
values = st.one_of(literals, list_literals, variables, nows)

pairs = st.builds(ast.Pair, WORDS, NOWHERE, values)
bindings = st.builds(
    ast.Binding, variables, TYPES, NOWHERE, st.lists(pairs, max_size=3).map(tuple), NOWHERE
)
U32 = st.integers(0, 2**32 - 1)
_paths = (
    st.tuples(st.none() | variables, st.just("one"), st.none())
    | st.tuples(variables, st.just("all"), st.none())
    | st.tuples(
        variables,
        st.just("cheapest"),
        st.builds(ast.PropertyRef, variables, WORDS, NOWHERE, NOWHERE),
    )
)
hops = st.builds(
    lambda path, **parts: ast.Hop(
        path_variable=path[0], path_kind=path[1], path_weight=path[2], **parts
    ),
    path=_paths,
    left=variables,
    edge_variable=st.none() | variables,
    edge_word=WORDS.filter(lambda word: word != "not"),
    edge_span=NOWHERE,
    undirected=st.booleans(),
    bounds=st.none()
    | st.builds(ast.HopBounds, U32 | variables, st.none() | U32 | variables, NOWHERE),
    right=variables,
    span=NOWHERE,
)


def some(inner: st.SearchStrategy[Any]) -> Any:
    return st.lists(inner, min_size=1, max_size=3).map(tuple)


counts = st.none() | st.builds(ast.Count, st.integers(0, 2**64 - 1) | variables, NOWHERE)
of_block = {
    "function": st.sampled_from(ast.BLOCK_FUNCTIONS),
    "clauses": some(bindings | hops | st.builds(ast.NullTest, properties, st.booleans(), NOWHERE)),
    "span": NOWHERE,
}
block_values: st.SearchStrategy[Any] = st.one_of(
    st.builds(
        ast.BlockValue,
        **of_block,
        items=st.just(()),
        distinct=st.just(False),
        order=st.just(()),
        limit=st.none(),
    ),
    st.builds(
        ast.BlockValue,
        **of_block,
        items=some(st.builds(ast.ReturnItem, properties, st.none() | WORDS, NOWHERE, NOWHERE)),
        distinct=st.booleans(),
        order=st.just(())
        | some(st.builds(ast.OrderKey, properties, st.sampled_from([None, True, False]), NOWHERE)),
        limit=counts,
    ),
)
filters = st.one_of(
    st.builds(
        ast.Filter,
        expressions,
        st.sampled_from(
            ["=", "!=", "<", "<=", ">", ">=", "contains", "starts_with", "ends_with", "matches"]
        ),
        expressions,
        NOWHERE,
    ),
    st.builds(
        ast.Filter, expressions, st.just("in"), list_literals | variables | properties, NOWHERE
    ),
    st.builds(
        ast.Filter,
        calls(ast.SearchCall, list(ast.TEXT_PREDICATES), expressions),
        st.just("="),
        st.builds(ast.Literal, st.just(True), NOWHERE),
        NOWHERE,
    ),
    st.builds(
        ast.Filter,
        block_values.filter(lambda block: block.function == "exists"),
        st.just("="),
        st.builds(ast.Literal, st.just(True), NOWHERE),
        NOWHERE,
    ),
    st.builds(ast.NullTest, expressions, st.booleans(), NOWHERE),
)


unnests = st.builds(ast.Unnest, variables, expressions, NOWHERE)
clauses = st.recursive(
    st.one_of(bindings, hops, filters, unnests),
    lambda inner: st.one_of(
        st.builds(ast.Not, some(inner), NOWHERE),
        st.builds(ast.Optional, some(inner), NOWHERE),
        st.builds(ast.Any, some(some(inner)), NOWHERE),
    ),
    max_leaves=5,
)


def is_nearest(expression: ast.Expression) -> bool:
    return isinstance(expression, ast.SearchCall) and expression.function == "nearest"


items = st.builds(ast.ReturnItem, expressions, st.none() | WORDS, NOWHERE, NOWHERE)
keys = st.builds(ast.OrderKey, expressions, st.sampled_from([None, True, False]), NOWHERE).filter(
    lambda key: key.descending is None or not is_nearest(key.expression)
)


def bodies(
    clauses: st.SearchStrategy[Any], stages: st.SearchStrategy[Any]
) -> st.SearchStrategy[ast.ReadBody]:
    return st.builds(
        ast.ReadBody,
        clauses=clauses,
        items=some(items),
        distinct=st.booleans(),
        having=st.just(()) | some(filters),
        order=st.just(()) | some(keys),
        limit=counts,
        offset=counts,
        return_span=NOWHERE,
        per=st.none()
        | st.builds(
            ast.LimitPer, counts.filter(lambda count: count is not None), expressions, NOWHERE
        ),
        stages=stages,
    )


none = st.just(())
later = none | some(clauses)
stages = st.tuples(bodies(some(clauses), none), st.lists(bodies(later, none), max_size=1)).map(
    lambda parts: (parts[0], *parts[1])
)
reads = bodies(some(clauses), none) | bodies(later, stages)

computed = st.recursive(
    values | properties,
    lambda inner: st.one_of(
        st.builds(ast.Arithmetic, st.sampled_from("+-*/%"), inner, inner, NOWHERE),
        calls(ast.FunctionCall, ["lower", "coalesce", "replace", "days"], inner),
    ),
    max_leaves=4,
)
simple_predicates = st.one_of(
    st.builds(
        ast.Comparison,
        WORDS,
        NOWHERE,
        st.sampled_from(["=", "!=", "<", "<=", ">", ">="]),
        computed,
        NOWHERE,
    ),
    st.builds(ast.Membership, WORDS, NOWHERE, list_literals | variables | properties, NOWHERE),
    st.builds(ast.PropertyNullTest, WORDS, NOWHERE, st.booleans(), NOWHERE),
)


def joined(inner: st.SearchStrategy[Any]) -> Any:
    """Chains of one word; a chain of the same word inside it would be taken apart."""
    return st.sampled_from(["and", "or"]).flatmap(
        lambda word: st.builds(
            ast.BooleanPredicate,
            st.just(word),
            st.lists(
                inner.filter(lambda p: getattr(p, "operator", None) != word),
                min_size=2,
                max_size=3,
            ).map(tuple),
            NOWHERE,
        )
    )


predicates = st.recursive(simple_predicates, joined, max_leaves=5)
assignments = some(
    st.builds(ast.Pair, WORDS, NOWHERE, computed | st.builds(ast.NullLiteral, NOWHERE))
)
statements = st.recursive(
    st.one_of(
        st.builds(ast.Insert, TYPES, NOWHERE, assignments, NOWHERE),
        st.builds(
            ast.Update, TYPES, NOWHERE, assignments, predicates, NOWHERE, st.none() | variables
        ),
        st.builds(ast.Delete, TYPES, NOWHERE, predicates, NOWHERE),
    ),
    lambda inner: st.builds(ast.ForEach, variables, variables | properties, some(inner), NOWHERE),
    max_leaves=4,
)
writes = st.builds(ast.WriteBody, some(statements))

parameter_types = st.one_of(
    st.builds(
        RecordsType,
        st.lists(
            st.tuples(
                WORDS,
                st.builds(
                    ValueType,
                    st.sampled_from(SCALAR_NAMES).map(Scalar),
                    st.booleans(),
                    is_list=st.booleans(),
                ),
            ),
            min_size=1,
            max_size=3,
            unique_by=lambda field: field[0],
        ).map(tuple),
        st.booleans(),
    ),
    st.builds(
        ValueType, st.sampled_from(SCALAR_NAMES).map(Scalar), st.booleans(), is_list=st.booleans()
    ),
    st.builds(
        ValueType, st.just(Scalar.VECTOR), st.booleans(), vector_dim=st.integers(0, 2**63 - 1)
    ),
)
queries = st.builds(
    ast.Query,
    name=WORDS,
    name_span=NOWHERE,
    parameters=st.lists(
        st.builds(ast.ParameterDecl, WORDS, parameter_types, NOWHERE), max_size=3
    ).map(tuple),
    description=st.none() | TEXTS,
    instruction=st.none() | TEXTS,
    body=reads | writes,
    span=NOWHERE,
)

# --- comparing ------------------------------------------------------------------------------------


def without_spans(node: Any) -> Any:
    """A tree as nested tuples, positions left out and equal numbers of different types apart."""
    if isinstance(node, ValueType):
        return node
    if is_dataclass(node):
        members = (
            without_spans(getattr(node, field.name))
            for field in fields(node)
            if field.name not in ("source", "span") and not field.name.endswith("_span")
        )
        return (type(node).__name__, *members)
    if isinstance(node, tuple):
        return tuple(without_spans(member) for member in node)
    return (type(node).__name__, repr(node)) if isinstance(node, float | int) else node


def one_query(text: str) -> ast.Query:
    (query,) = parse_query_file(text).queries
    return query


def read_of(clause: str = "$a: A", item: str = "$a", rest: str = "") -> ast.ReadBody:
    body = one_query(f"query q() {{ match {{ {clause} }} return {{ {item} }} {rest} }}").body
    assert isinstance(body, ast.ReadBody)
    return body


# --- properties -----------------------------------------------------------------------------------


@given(queries)
def test_what_is_printed_parses_to_the_same_tree(query):
    printed = print_query(query)
    parsed = one_query(printed)
    assert without_spans(parsed) == without_spans(query)
    assert print_query(parsed) == printed


@given(st.lists(queries, max_size=2), LAYOUTS)
def test_the_layout_of_a_text_does_not_matter(trees, layout):
    file = ast.QueryFile(Source(""), tuple(trees))
    text = shaken(print_query_file(file), layout)
    assert without_spans(parse_query_file(text)) == without_spans(file)


@given(queries, LAYOUTS)
def test_every_node_knows_where_it_stands(query, layout):
    text = shaken(print_query(query), layout)
    check_spans(one_query(text), text)


def shaken(text: str, layout: random.Random) -> str:
    """The same tokens with other gaps; only a sign and an index stay with what they touch."""
    stream = QueryStream(Source(text))
    pieces: list[str] = []
    last_end = 0
    while stream.current.kind is not TokenKind.END:
        token = stream.advance()
        touches = token.span.start == last_end
        is_kept = touches and (pieces[-1:] == ["-"] or token.text == "[")
        pieces += [] if is_kept else [layout.choice(SEPARATORS)]
        pieces.append(text[token.span.start : token.span.end])
        last_end = token.span.end
    return "".join([*pieces, layout.choice(SEPARATORS)])


def check_spans(node: Any, text: str) -> None:
    """Follow the tree down and hold every span against the text it covers."""
    if isinstance(node, tuple) and not isinstance(node, Span):
        for member in node:
            check_spans(member, text)
    elif is_dataclass(node) and not isinstance(node, ValueType):
        check_node(node, text)
        for field in fields(node):
            check_spans(getattr(node, field.name), text)


NAMED_SPANS = {
    "name_span": "name",
    "type_span": "type_name",
    "edge_span": "edge_word",
    "alias_span": "alias",
}


def check_node(node: Any, text: str) -> None:
    for span_name, name in NAMED_SPANS.items():
        span = getattr(node, span_name, None)
        if span is not None:
            assert text[slice(*span)] == getattr(node, name)
    if isinstance(node, ast.ReadBody):
        assert text[slice(*node.return_span)] in ("return", "with")
    span = getattr(node, "span", None)
    if span is not None:
        piece = text[slice(*span)]
        assert piece == piece.strip()
        if not is_implied(node, piece):
            assert without_spans(reparsed(node, piece)) == without_spans(node)


def is_implied(node: Any, piece: str) -> bool:
    """The `true` of a bare text predicate stands nowhere; it points at the call."""
    return isinstance(node, ast.Literal) and node.value is True and piece != "true"


def reparsed(node: Any, piece: str) -> Any:
    """Parse the text of one node where such nodes stand."""
    match node:
        case ast.Query():
            return one_query(piece)
        case ast.ParameterDecl():
            return one_query(f"query q({piece}) {{ delete A where x = 1 }}").parameters[0]
        case ast.Insert() | ast.Update() | ast.Delete() | ast.ForEach():
            return one_statement(piece)
        case ast.Comparison() | ast.Membership() | ast.PropertyNullTest() | ast.BooleanPredicate():
            return one_statement(f"delete A where {piece}").where
        case ast.NullLiteral():
            return one_statement(f"insert A {{ x: {piece} }}").assignments[0].value
        case ast.ReturnItem():
            return read_of(item=piece).items[0]
        case ast.OrderKey():
            return read_of(rest=f"order {{ {piece} }}").order[0]
        case ast.Count():
            return read_of(rest=f"limit {piece}").limit
        case ast.LimitPer():
            return read_of(rest=f"limit {piece}").per
        case ast.HopBounds():
            hop = read_of(clause=f"$a x{piece} $b").clauses[0]
            assert isinstance(hop, ast.Hop)
            return hop.bounds
        case ast.Filter() | ast.NullTest():
            # Not in a match: the filter of a `having` could be a hop there.
            return read_of(rest=f"having {{ {piece} }}").having[0]
        case ast.BooleanCondition():
            conditional = read_of(item=f"if({piece}, 1)").items[0].expression
            assert isinstance(conditional, ast.Conditional)
            return conditional.cases[0][0]
        case ast.Binding() | ast.Hop() | ast.Not() | ast.Optional() | ast.Any() | ast.Unnest():
            return read_of(clause=piece).clauses[0]
        case _:
            return read_of(item=piece).items[0].expression


def one_statement(text: str) -> Any:
    body = one_query(f"query q() {{ {text} }}").body
    assert isinstance(body, ast.WriteBody)
    return body.statements[0]


# --- the canonical layout -------------------------------------------------------------------------

CANONICAL = """\
query around($name: String, $since: Date?)
    @description("who is \\"around\\"")
    @instruction("ask twice")
{
    match {
        $p: Person { name: $name, tags: ["a", "b"] }
        $p $k:<knows>{1,3} $f via $r
        $f.age >= -3
        search($f.bio, "x")
        any {
            $f.age is null
            all {
                $f wrote $b
                $b.pages > (1 + 2) * 3
            }
        }
        not {
            optional {
                $f.x in [0.5, 100000000000000000000.0]
            }
        }
    }
    return distinct {
        $f.* as friend,
        count(distinct $b) as books,
        coalesce($f.nick, $f.name, "nobody knows") as shown
    }
    having {
        books > 1
    }
    order { books desc, $f.name }
    limit 10 offset $m
}

query change() {
    insert Person { name: "x", at: now(), gone: null }
    update Person set { age: 3 } where a = 1 and (b < 2 or c is not null) and d in [1]
    delete Person where day = date("2031-04-09") or at < datetime("2031-04-09T07:30:00.120Z")
}
"""


def test_canonical_text_is_printed_as_it_stands():
    assert print_query_file(parse_query_file(CANONICAL)) == CANONICAL


@pytest.mark.parametrize(
    "text",
    [
        "$a.x + 2 * 3 - 4",
        "($a.x + 2) * 3",
        "1 - (2 - 3)",
        "1 - 2 - 3",
        "8 / (4 * 2)",
        "1 - -2",
        "count((distinct + 1))",
        "count(distinct distinct + 1)",
    ],
)
def test_only_parentheses_that_matter_are_printed(text):
    assert print_expression(read_of(item=text).items[0].expression) == text
    assert print_expression(read_of(item=f"(({text}))").items[0].expression) == text


@pytest.mark.parametrize(
    "text",
    [
        "($q) contains $x",
        "($q) in $list",
        "(-3) < $a.x",
        "$q = $x",
        "$q is null",
        '$q contains "x"',
    ],
)
def test_single_clauses_are_printed_so_that_they_are_read_again(text):
    assert print_clause(read_of(clause=text).clauses[0]) == text


def test_neighbouring_clauses_are_printed_so_that_they_stay_apart():
    text = "$a.x = (total) (1 + 2) * 3 > $a.y search($a.x, $q) = true in > 3"
    clauses_read = read_of(clause=text).clauses
    assert len(clauses_read) == 3 + 1
    printed = print_query(one_query(f"query q() {{ match {{ {text} }} return {{ $a }} }}"))
    assert re.sub(r"\s+", " ", printed) == f"query q() {{ match {{ {text} }} return {{ $a }} }} "


def test_predicates_are_printed_with_the_parentheses_they_need():
    for text in (
        "a = 1 and (b = 2 or c = 3)",
        "a = 1 and b = 2 or c = 3",
        "(a = 1 or b = 2) and c = 3",
    ):
        assert print_predicate(one_statement(f"delete A where {text}").where) == text
