"""A primer of the query language for one schema: short rules, and examples with its own types.

It is for readers who know no `.gq` yet, such as language models. Every example is compiled against
the schema before it is shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from itertools import islice

from omnigraph.errors import CompileError
from omnigraph.model.records import dataclass
from omnigraph.model.types import Scalar, ValueType
from omnigraph.query.compile import compile_query
from omnigraph.schema.catalog import Catalog, EdgeType, InterfaceType, NodeType, Property
from omnigraph.schema.compile import compile_schema

_RULES = """\
# The query language of this graph

A query describes a pattern, and says what to return or to write. Every query has a name.

- `$p: Person` binds a node; `$p: Person { name: $n }` adds equalities. Types begin with a capital
  letter, variables with `$` and a small letter.
- `$p knows $f` follows the edge type `Knows`, written with a small first letter. Direction
  follows from the types: the node at the edge's source may stand on either side. `$p <knows> $f`
  goes both ways, `$p knows{1,3} $f` finds each node within so many steps once, and `$p $e:knows
  $f` names the edge, to read `$e.since`.
- Clauses of a `match` all have to hold. `any { a  b }` is or, `not { … }` is not, `optional { …
  }` may be missing.
- Conditions: `=` `!=` `<` `<=` `>` `>=`, `in`, `contains`, `starts_with`, `ends_with`, `is null`,
  `is not null`. A comparison with null never holds.
- `return { $p.name as name, count(*) as n }` lists columns; `$p.*` is the whole node. Items that
  are no aggregates are the groups.
- After it come `having { n > 1 }`, `order { n desc, name }`, `limit 10`, `offset 20`. `with { … }
  match { … }` goes on from the rows of a stage.
- Values belong into parameters, which are declared with their types: `($name: String, $ids:
  [String], $since: Date?)`. A date is written `date("2031-04-09")`, a moment
  `datetime("2031-04-09T07:30:00Z")`.
- There is no `WHERE`, `SELECT` or semicolon. Comments begin with `//`.
"""
_FOUND_MAX = 2
"""Maximum number of node types and of edge types with examples."""


@dataclass(frozen=True, slots=True)
class FirstReading:
    """A text for clients that know nothing of a graph, under the same name everywhere."""

    uri: str
    name: str
    about: str
    mime_type: str


SCHEMA_READING = FirstReading(
    "omnigraph://schema",
    "schema",
    "The types of nodes and edges of this graph, and their properties.",
    "text/plain",
)
PRIMER_READING = FirstReading(
    "omnigraph://primer",
    "primer",
    "The query language, with examples about the types of this graph, and what is allowed.",
    "text/markdown",
)
QUERIES_READING = FirstReading(
    "omnigraph://queries",
    "queries",
    "The stored queries, each of which is a tool: what they do and take.",
    "application/json",
)


@dataclass(frozen=True, slots=True)
class Example:
    """A query, and a line on what it shows."""

    title: str
    text: str


@lru_cache(maxsize=16)
def primer(schema_source: str) -> str:
    """The primer for a schema, as Markdown.

    Raises `CompileError` for a text that is no schema.
    """
    catalog = compile_schema(schema_source).catalog
    shown = [f"## {each.title}\n\n```gq\n{each.text}```\n" for each in examples(catalog)]
    return "\n".join([_RULES, *shown])


def examples(catalog: Catalog) -> list[Example]:
    """The examples for a schema, all of which compile."""
    return [each for each in candidates(catalog) if _compiles(each.text, catalog)]


def _compiles(text: str, catalog: Catalog) -> bool:
    try:
        compile_query(text, catalog)
    except CompileError:
        return False
    return True


def candidates(catalog: Catalog) -> Iterator[Example]:
    """Every example that the types of a schema allow."""
    edges = sorted(catalog.edges.values(), key=lambda each: (not each.properties, each.name))
    ends = {name for edge in edges for name in (edge.source, edge.target)}
    nodes = sorted(catalog.nodes.values(), key=lambda each: (each.name not in ends, each.name))
    for node in nodes[:_FOUND_MAX]:
        yield from _of_node(node)
    for at, edge in enumerate(edges[:_FOUND_MAX]):
        yield from islice(_of_edge(edge, catalog), 2 if at else None)
    yield from _first_of(edges, lambda edge: edge.source == edge.target, _of_loop, catalog)
    for interface in list(catalog.interfaces.values())[:1]:
        yield from _of_interface(interface, catalog)
    yield from _searches(nodes)
    for node in nodes[:1]:
        yield from _writes_of_node(node)
    for edge in edges[:1]:
        yield from _writes_of_edge(edge, catalog)


def _first_of(
    edges: list[EdgeType],
    fits: Callable[[EdgeType], bool],
    make: Callable[[EdgeType, Catalog], Iterator[Example]],
    catalog: Catalog,
) -> Iterator[Example]:
    for edge in edges:
        if fits(edge):
            yield from make(edge, catalog)
            return


# --- reads ----------------------------------------------------------------------------------------


def _of_node(node: NodeType) -> Iterator[Example]:
    word, shown = _word(node.name), _shown(node.properties)
    if node.key:
        pairs = ", ".join(f"{name}: ${name}" for name in node.key)
        declared = ", ".join(f"${name}: {_declared(node.properties[name])}" for name in node.key)
        yield Example(
            f"One {node.name} by its key",
            f"query one_{word}({declared}) {{\n"
            f"    match {{ $x: {node.name} {{ {pairs} }} }}\n"
            f"    return {{ $x.* as {word} }}\n}}\n",
        )
    ordered = min(
        (each for each in shown if each.type.scalar in _ORDERED),
        key=lambda each: (each.name in node.key, each.type.scalar is Scalar.STRING),
        default=None,
    )
    if ordered is not None:
        columns = ", ".join(f"$x.{each.name}" for each in shown)
        yield Example(
            f"Many of {node.name}, with a condition, an order and a page",
            f"query some_{word}($least: {_declared(ordered)}, $size: I32) {{\n"
            f"    match {{ $x: {node.name}  $x.{ordered.name} >= $least }}\n"
            f"    return {{ {columns} }}\n"
            f"    order {{ $x.{ordered.name} desc }}\n"
            "    limit $size\n}\n",
        )
        yield Example(
            f"How many of {node.name} there are, by `{ordered.name}`",
            f"query count_{word} {{\n"
            f"    match {{ $x: {node.name} }}\n"
            f"    return {{ $x.{ordered.name} as {_alias(ordered)}, count(*) as n }}\n"
            f"    order {{ n desc, {_alias(ordered)} }}\n"
            "    limit 10\n}\n",
        )


def _of_edge(edge: EdgeType, catalog: Catalog) -> Iterator[Example]:
    hop, word = _hop(edge), _word(edge.name)
    source, target = _columns(edge.source, catalog), _columns(edge.target, catalog)
    near, far = f"$a.{source}" if source else "$a", f"$b.{target}" if target else "$b"
    yield Example(
        f"From {edge.source} to {edge.target} by {edge.name}",
        f"query {word}_pairs {{\n"
        f"    match {{ $a: {edge.source}  $a {hop} $b }}\n"
        f"    return {{ {near} as one, {far} as other }}\n"
        "    limit 20\n}\n",
    )
    properties = _shown(edge.properties)
    if properties:
        columns = ", ".join(f"$e.{each.name} as {_alias(each)}" for each in properties)
        yield Example(
            f"With the properties of {edge.name}",
            f"query {word}_edges {{\n"
            f"    match {{ $a $e:{hop} $b }}\n"
            f"    return {{ {near} as one, {far} as other, {columns} }}\n"
            "    limit 20\n}\n",
        )
    yield Example(
        f"Those of {edge.source} with most {edge.name}",
        f"query most_{word} {{\n"
        f"    match {{ $a: {edge.source}  $a {hop} $b }}\n"
        f"    return {{ {near} as one, count($b) as n }}\n"
        "    order { n desc, one }\n"
        "    limit 10\n}\n",
    )
    yield Example(
        f"{edge.source} without any {edge.name}",
        f"query without_{word} {{\n"
        f"    match {{ $a: {edge.source}  not {{ $a {hop} $b }} }}\n"
        f"    return {{ {near} as one }}\n}}\n",
    )
    yield Example(
        f"{edge.source} with what may be missing, and with a number for each",
        f"query {word}_or_none {{\n"
        f"    match {{ $a: {edge.source}  optional {{ $a {hop} $b }} }}\n"
        f"    return {{ {near} as one, {far} as other,"
        f" count {{ $a {hop} $c }} as number }}\n"
        "    limit 20\n}\n",
    )


def _of_loop(edge: EdgeType, catalog: Catalog) -> Iterator[Example]:
    hop, word, column = _hop(edge), _word(edge.name), _columns(edge.source, catalog)
    far = f"$b.{column}" if column else "$b"
    node = catalog.nodes.get(edge.source)
    start, declared = f"$a: {edge.source}", ""
    if node is not None and len(node.key) == 1:
        key = node.properties[node.key[0]]
        start, declared = f"$a: {edge.source} {{ {key.name}: $key }}", f"$key: {_declared(key)}"
    yield Example(
        f"Within three steps of {edge.name}, each node once",
        f"query {word}_circle({declared}) {{\n"
        f"    match {{ {start}  $a {hop}{{1,3}} $b }}\n"
        f"    return {{ {far} as other }}\n}}\n",
    )
    yield Example(
        f"A shortest path of {edge.name} in either direction",
        f"query {word}_path({declared}) {{\n"
        f"    match {{ {start}  $a <{hop}>{{1,6}} $b via $path }}\n"
        f"    return {{ {far} as other, $path.nodes as nodes, $path.length as steps }}\n"
        "    order { steps }\n"
        "    limit 10\n}\n",
    )


def _of_interface(interface: InterfaceType, catalog: Catalog) -> Iterator[Example]:
    types = catalog.node_types(interface.name)
    if not types:
        return
    yield Example(
        f"All types of {interface.name}, and one of them",
        f"query each_{_word(interface.name)} {{\n"
        f"    match {{ $x: {interface.name} }}\n"
        "    return { $x.@type as type, count(*) as n }\n}\n",
    )
    yield Example(
        f"Of {interface.name} the {types[0].name} alone",
        f"query only_{_word(types[0].name)} {{\n"
        f"    match {{ $x: {interface.name}  $x is {types[0].name} }}\n"
        "    return { $x.* as found }\n"
        "    limit 10\n}\n",
    )


def _searches(nodes: list[NodeType]) -> Iterator[Example]:
    for node in nodes:
        indexed = {name for columns in node.indexes for name in columns}
        texts = [
            each
            for each in node.properties.values()
            if each.name in indexed and _is_text(each) and each.type.enum_values is None
        ]
        if texts:
            name = texts[0].name
            yield Example(
                f"{node.name} by the words of `{name}`, best first",
                f"query search_{_word(node.name)}($words: String) {{\n"
                f"    match {{ $x: {node.name}  search($x.{name}, $words) }}\n"
                f"    return {{ $x.{name}, bm25($x.{name}, $words) as score }}\n"
                "    order { score desc }\n"
                "    limit 10\n}\n",
            )
            break
    for node in nodes:
        vector = next((each for each in node.properties.values() if each.type.is_vector), None)
        if vector is not None:
            yield Example(
                f"{node.name} by the nearest `{vector.name}`",
                f"query near_{_word(node.name)}($to: {vector.type.with_nullable(False)}) {{\n"
                f"    match {{ $x: {node.name} }}\n"
                "    return { $x.* as found }\n"
                f"    order {{ nearest($x.{vector.name}, $to) }}\n"
                "    limit 10\n}\n",
            )
            break


# --- writes ---------------------------------------------------------------------------------------


def _writes_of_node(node: NodeType) -> Iterator[Example]:
    word, needed = _word(node.name), _needed(node.properties)
    declared = ", ".join(f"${each.name}: {_declared(each)}" for each in needed)
    assigned = ", ".join(f"{each.name}: ${each.name}" for each in needed)
    yield Example(
        f"Insert {node.name}, or replace the one of that key"
        if node.key
        else f"Insert {node.name}",
        f"query add_{word}({declared}) {{\n    insert {node.name} {{ {assigned} }}\n}}\n",
    )
    if len(node.key) != 1:
        return
    key = node.properties[node.key[0]]
    changed = next(
        (
            each
            for each in node.properties.values()
            if each.name not in node.key and each.embed is None and not each.type.is_blob
        ),
        None,
    )
    if changed is not None:
        change = f"set {{ {changed.name}: $value }} where {key.name} = $key"
        yield Example(
            f"Change a property of {node.name}",
            f"query change_{word}($key: {_declared(key)}, $value: {_declared(changed)}) {{\n"
            f"    update {node.name} {change}\n}}\n",
        )
    yield Example(
        f"Delete {node.name} with its edges",
        f"query remove_{word}($key: {_declared(key)}) {{\n"
        f"    delete {node.name} where {key.name} = $key\n}}\n",
    )


def _writes_of_edge(edge: EdgeType, catalog: Catalog) -> Iterator[Example]:
    needed = _needed(edge.properties)
    ends = f"$from: {_end(edge.source, catalog)}, $to: {_end(edge.target, catalog)}"
    declared = "".join(f", ${each.name}: {_declared(each)}" for each in needed)
    assigned = "".join(f", {each.name}: ${each.name}" for each in needed)
    yield Example(
        f"Insert {edge.name} between two keys",
        f"query add_{_word(edge.name)}({ends}{declared}) {{\n"
        f"    insert {edge.name} {{ from: $from, to: $to{assigned} }}\n}}\n",
    )


# --- parts ----------------------------------------------------------------------------------------

_ORDERED = frozenset(Scalar) - {Scalar.BOOL, Scalar.BLOB, Scalar.VECTOR}


def _is_text(each: Property) -> bool:
    return each.type.scalar is Scalar.STRING and not each.type.is_list


def _shown(properties: Mapping[str, Property]) -> list[Property]:
    """Up to three single-valued properties, required ones first."""
    single = [each for each in properties.values() if each.type.is_plain_scalar]
    return sorted(single, key=lambda each: (each.type.nullable, each.name))[:3]


def _needed(properties: Mapping[str, Property]) -> list[Property]:
    return [
        each
        for each in properties.values()
        if not each.type.nullable and each.default is None and each.embed is None
    ]


def _columns(type_name: str, catalog: Catalog) -> str | None:
    """A property that identifies nodes of a type, or else one to show."""
    node = catalog.nodes.get(type_name)
    if node is not None and node.key:
        return node.key[0]
    properties = node.properties if node else catalog.interfaces[type_name].properties
    shown = _shown(properties)
    return shown[0].name if shown else None


def _end(type_name: str, catalog: Catalog) -> str:
    """The parameter type for an end of an edge: that of the key, else of the id."""
    node = catalog.nodes.get(type_name)
    if node is None or len(node.key) != 1:
        return str(ValueType(Scalar.STRING))
    return _declared(node.properties[node.key[0]])


def _declared(each: Property) -> str:
    """The type of a parameter for a property."""
    type_ = each.type
    return str(ValueType(type_.scalar, is_list=type_.is_list, vector_dim=type_.vector_dim))


def _alias(each: Property) -> str:
    """The name of a column; renamed if the examples have another column of that name."""
    return f"{each.name}_value" if each.name in ("n", "one", "other") else each.name


def _word(type_name: str) -> str:
    return type_name[0].lower() + type_name[1:]


def _hop(edge: EdgeType) -> str:
    return _word(edge.name)
