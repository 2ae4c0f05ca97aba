"""Random schemas: any text of the grammar, and texts that keep every rule.

`documents` makes syntax trees that follow the grammar and nothing else; `written` prints one with
random spacing and comments. `schemas` makes admissible schemas as parts that can be shuffled.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from hypothesis import strategies as st

from omnigraph.model.types import SCALAR_NAMES, Scalar
from omnigraph.syntax import schema_ast as ast
from omnigraph.syntax.schema_ast import COLUMNS_KINDS
from omnigraph.syntax.tokens import Source, Span

NOWHERE = Span(0, 0)

# --- syntax trees ---------------------------------------------------------------------------------

_ESCAPED = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_WORD = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_"


def quoted(text: str) -> str:
    """A string literal for any text."""
    return '"' + "".join(_ESCAPED.get(c, c) for c in text) + '"'


def _names(first: str) -> st.SearchStrategy[ast.Name]:
    text = st.builds(str.__add__, st.sampled_from(first), st.text(_WORD, max_size=6))
    return st.builds(ast.Name, text, st.just(NOWHERE))


IDENTS = _names("abcxyz_").filter(lambda name: name.text not in ("true", "false"))
TYPE_NAMES = _names("ABCXYZ")
ENUM_VALUES = st.builds(ast.Name, st.text(_WORD + "-", min_size=1, max_size=6), st.just(NOWHERE))
DIGITS = st.text("0123456789", min_size=1, max_size=9)


def _number(text: str) -> ast.NumberExpr:
    return ast.NumberExpr(float(text) if "." in text else int(text), text, NOWHERE)


INTEGERS = DIGITS.map(_number)
FLOATS = st.builds("{}.{}".format, DIGITS, DIGITS).map(_number)
NUMBERS = st.builds(
    lambda sign, number: _number(sign + number.text), st.sampled_from(["", "-"]), INTEGERS | FLOATS
)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
STRINGS = TEXTS.map(lambda text: ast.LiteralExpr(text, quoted(text), NOWHERE))
LITERALS = st.one_of(
    STRINGS,
    (INTEGERS | FLOATS).map(lambda n: ast.LiteralExpr(n.value, n.text, NOWHERE)),
    st.booleans().map(lambda b: ast.LiteralExpr(b, str(b).lower(), NOWHERE)),
)
IDENTIFIER_VALUES = IDENTS.map(
    lambda name: ast.LiteralExpr(name.text, name.text, NOWHERE, is_identifier=True)
)

_RESERVED_ANNOTATIONS = ("key", "unique", "index", "range", "check", "card", "embed", "default")
ANNOTATION_NAMES = IDENTS.filter(lambda name: name.text not in _RESERVED_ANNOTATIONS)


@st.composite
def annotation_exprs(draw: st.DrawFn) -> ast.AnnotationExpr:
    value = draw(st.none() | LITERALS | IDENTIFIER_VALUES)
    options: list[ast.OptionExpr] = []
    if value is not None:
        names = draw(st.lists(IDENTS, max_size=2, unique_by=lambda name: name.text))
        options = [ast.OptionExpr(name, draw(LITERALS)) for name in names]
    return ast.AnnotationExpr(draw(ANNOTATION_NAMES), value, tuple(options), NOWHERE)


BARE_CONSTRAINTS = st.sampled_from(COLUMNS_KINDS).map(
    lambda kind: ast.AnnotationExpr(ast.Name(kind, NOWHERE), None, (), NOWHERE)
)


@st.composite
def types(draw: st.DrawFn) -> ast.TypeExpr:
    nullable = draw(st.booleans())
    match draw(st.sampled_from(["scalar", "list", "vector", "enum"])):
        case "vector":
            return ast.TypeExpr(Scalar.VECTOR, NOWHERE, nullable=nullable, dimension=draw(INTEGERS))
        case "enum":
            values = draw(st.lists(ENUM_VALUES, min_size=1, max_size=3))
            return ast.TypeExpr(
                Scalar.STRING, NOWHERE, nullable=nullable, enum_values=tuple(values)
            )
        case kind:
            scalar = Scalar(draw(st.sampled_from(SCALAR_NAMES)))
            return ast.TypeExpr(scalar, NOWHERE, nullable=nullable, is_list=kind == "list")


@st.composite
def properties(draw: st.DrawFn) -> ast.PropertyDecl:
    found = draw(st.lists(annotation_exprs() | BARE_CONSTRAINTS, max_size=2))
    return ast.PropertyDecl(draw(IDENTS), draw(types()), tuple(found), NOWHERE)


@st.composite
def constraints(draw: st.DrawFn) -> ast.ConstraintDecl:
    match draw(st.sampled_from(["columns", "range", "check"])):
        case "columns":
            kind = draw(st.sampled_from(COLUMNS_KINDS))
            columns = draw(st.lists(IDENTS, min_size=1, max_size=3))
            return ast.ColumnsDecl(kind, tuple(columns), NOWHERE)
        case "range":
            low, high = draw(
                st.tuples(st.none() | NUMBERS, st.none() | NUMBERS).filter(
                    lambda b: b != (None, None)
                )
            )
            return ast.RangeDecl(draw(IDENTS), low, high, NOWHERE)
        case _:
            return ast.CheckDecl(draw(IDENTS), draw(STRINGS), NOWHERE)


def _few(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(strategy, max_size=3).map(tuple)


_CARDINALITIES = st.builds(ast.CardinalityDecl, INTEGERS, st.none() | INTEGERS, st.just(NOWHERE))
_DECLARATIONS = st.one_of(
    st.builds(ast.InterfaceDecl, TYPE_NAMES, _few(properties()), st.just(NOWHERE)),
    st.builds(
        ast.NodeDecl,
        TYPE_NAMES,
        _few(annotation_exprs()),
        _few(TYPE_NAMES),
        _few(properties()),
        _few(constraints()),
        st.just(NOWHERE),
    ),
    st.builds(
        ast.EdgeDecl,
        TYPE_NAMES,
        TYPE_NAMES,
        TYPE_NAMES,
        st.none() | _CARDINALITIES,
        _few(annotation_exprs()),
        _few(properties()),
        _few(constraints()),
        st.just(NOWHERE),
    ),
)


def documents() -> st.SearchStrategy[ast.SchemaDocument]:
    """Any document the grammar allows."""
    return st.builds(ast.SchemaDocument, st.just(Source("")), _few(_DECLARATIONS))


def placeless(part: Any) -> Any:
    """A syntax tree without its positions, for comparing."""
    if isinstance(part, Span | Source):
        return None
    if isinstance(part, tuple):
        return (type(part).__name__, *map(placeless, part))
    return (type(part).__name__, part)


# --- printing -------------------------------------------------------------------------------------


def tokens_of(document: ast.SchemaDocument) -> list[str]:
    """The tokens of a document; any white space or comment may stand between two of them."""
    return [token for declaration in document.declarations for token in _declaration(declaration)]


def _declaration(decl: ast.InterfaceDecl | ast.NodeDecl | ast.EdgeDecl) -> list[str]:
    match decl:
        case ast.InterfaceDecl():
            return ["interface", decl.name.text, "{", *_all(decl.properties, _property), "}"]
        case ast.NodeDecl():
            implements = _listed([name.text for name in decl.implements])
            return [
                *("node", decl.name.text),
                *_all(decl.annotations, _annotation),
                *(["implements", *implements] if implements else []),
                *_body(decl),
            ]
        case ast.EdgeDecl():
            card: list[str] = []
            if decl.cardinality is not None:
                high = decl.cardinality.maximum
                card = ["@", "card", "(", decl.cardinality.minimum.text, ".."]
                card += [*([high.text] if high else []), ")"]
            return [
                *("edge", decl.name.text, ":", decl.source.text, "->", decl.target.text),
                *card,
                *_all(decl.annotations, _annotation),
                *_body(decl),
            ]


def _body(decl: ast.NodeDecl | ast.EdgeDecl) -> list[str]:
    return [
        "{",
        *_all(decl.properties, _property),
        *_all(decl.constraints, _constraint),
        "}",
    ]


def _property(decl: ast.PropertyDecl) -> list[str]:
    found = decl.type
    if found.enum_values is not None:
        written = ["enum", "(", *_listed([value.text for value in found.enum_values]), ")"]
    elif found.dimension is not None:
        written = ["Vector", "(", found.dimension.text, ")"]
    else:
        written = ["[", found.scalar, "]"] if found.is_list else [found.scalar]
    written += ["?"] if found.nullable else []
    return [decl.name.text, ":", *written, *_all(decl.annotations, _annotation)]


def _annotation(annotation: ast.AnnotationExpr) -> list[str]:
    found = ["@", annotation.name.text]
    if annotation.value is not None:
        found += ["(", annotation.value.text]
        for option in annotation.options:
            found += [",", option.name.text, "=", option.value.text]
        found.append(")")
    return found


def _constraint(constraint: ast.ConstraintDecl) -> list[str]:
    match constraint:
        case ast.ColumnsDecl():
            columns = _listed([column.text for column in constraint.columns])
            return ["@", constraint.kind, "(", *columns, ")"]
        case ast.RangeDecl():
            low, high = constraint.minimum, constraint.maximum
            bounds = [*([low.text] if low else []), "..", *([high.text] if high else [])]
            return ["@", "range", "(", constraint.property.text, ",", *bounds, ")"]
        case ast.CheckDecl():
            arguments = [constraint.property.text, ",", constraint.pattern.text]
            return ["@", "check", "(", *arguments, ")"]


def _all(parts: Any, write: Any) -> list[str]:
    return [token for part in parts for token in write(part)]


def _listed(items: list[str]) -> list[str]:
    return [token for item in items for token in (item, ",")][:-1]


GAPS = st.sampled_from([" ", "\n", "\t", "\r\n", ' // note "@{\n', " /* } // */ ", "  "])


@st.composite
def written(draw: st.DrawFn, document: ast.SchemaDocument) -> str:
    """The text of a document, with something between each two tokens."""
    tokens = tokens_of(document)
    gaps = draw(st.lists(GAPS, min_size=len(tokens), max_size=len(tokens)))
    return "".join(token + gap for token, gap in zip(tokens, gaps, strict=True))


# --- admissible schemas ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Declaration:
    """One declaration in parts: the items of its body stand in any order."""

    header: str
    items: tuple[str, ...] = ()
    hint: str = ""
    tail: str = ""

    def text(self) -> str:
        """The declaration as it is written."""
        body = "\n    ".join(self.items)
        return f"{self.header} {self.hint} {self.tail} {{\n    {body}\n}}"


@dataclass(frozen=True)
class Schema:
    """An admissible schema in parts."""

    declarations: tuple[Declaration, ...] = field(default=())

    def text(self) -> str:
        """The schema as it is written."""
        return "\n".join(declaration.text() for declaration in self.declarations)


_PLAIN = ["String", "Bool", "I32", "I64", "U32", "U64", "F32", "F64", "Date", "DateTime"]
_DEFAULTS = {
    "String": '"d"',
    "Bool": "true",
    "I32": "-7",
    "U64": "18446744073709551615",
    "F32": "0.5",
    "F64": "3",
    "Date": '"2026-01-31"',
    "DateTime": '"2026-01-31T12:00:00Z"',
    "enum(a, b)": "a",
    "enum(a, b, c)": '"b"',
}
_TYPES = [*_PLAIN, "enum(a, b)", "enum(a, b, c)", "[String]", "[I64]", "Vector(4)", "Blob"]


@st.composite
def _property_item(draw: st.DrawFn, name: str) -> tuple[str, str]:
    """A property and its type without the question mark."""
    base = draw(st.sampled_from(_TYPES))
    parts = [f"{name}: {base}{draw(st.sampled_from(['', '?']))}"]
    plain = base in _PLAIN or base.startswith("enum")
    if base in _DEFAULTS and draw(st.booleans()):
        parts.append(f"@default({_DEFAULTS[base]})")
    elif plain and draw(st.booleans()):
        parts.append("@unique")
    if (plain or base.startswith("Vector")) and draw(st.booleans()):
        parts.append("@index")
    if draw(st.booleans()):
        parts.append(f"@description({quoted('d' + draw(TEXTS))})")
    if draw(st.booleans()):
        parts.append(draw(st.sampled_from(["@pii", "@unit(cm)", '@tier(1, hot=true, cold="x")'])))
    return " ".join(parts), base


@st.composite
def _body_items(draw: st.DrawFn, prefix: str, *, is_node: bool) -> tuple[str, ...]:
    names = draw(st.lists(st.sampled_from("abcdef"), unique=True, max_size=4))
    items: list[str] = []
    plain: list[str] = []
    rules: list[str] = []
    key: str | None = None
    of_edge = ["src", "dst"] if not is_node and draw(st.booleans()) else []
    for letter in names:
        name = f"{prefix}{letter}"
        item, base = draw(_property_item(name))
        has_default = "@default" in item
        if base in _PLAIN or base.startswith("enum"):
            plain.append(name)
            nullable = f"{base}?" in item
            if is_node and key is None and not nullable and not has_default and draw(st.booleans()):
                key = name
                rules.append(f"@key({name})")
            if of_edge and not nullable and not has_default and draw(st.booleans()):
                of_edge.append(name)
        if is_node and base in ("I32", "F64") and not has_default and draw(st.booleans()):
            rules.append(f"@range({name}, {draw(st.sampled_from(['0..', '..9', '-1..2.5']))})")
        if is_node and base == "String" and not has_default and draw(st.booleans()):
            rules.append(f'@check({name}, "^[a-z]")')
        items.append(item)
    columns = plain if is_node else [*plain, "src", "dst"]
    if len(columns) > 1:
        groups = st.lists(st.sampled_from(columns), min_size=2, max_size=2, unique=True)
        kinds = draw(st.lists(st.sampled_from(["unique", "index"]), max_size=2))
        rules += [f"@{kind}({', '.join(draw(groups))})" for kind in kinds]
    if of_edge:
        rules.append(f"@key({', '.join(draw(st.permutations(of_edge)))})")
    return (*items, *rules)


_METADATA = st.sampled_from(["", '@description("about")', '@instruction("do") @owner(ops)'])


@st.composite
def schemas(draw: st.DrawFn) -> Schema:
    """An admissible schema; names come from small pools, so that two of them overlap."""
    found: list[Declaration] = []
    interfaces = draw(st.lists(st.sampled_from(["I", "J"]), unique=True))
    for name in interfaces:
        items = draw(_body_items(f"{name.lower()}_", is_node=False))
        own = [item for item in items if not item.startswith("@")]
        found.append(Declaration(f"interface {name}", tuple(own)))
    nodes = draw(st.lists(st.sampled_from(["A", "B", "C"]), unique=True))
    for name in nodes:
        header = f"node {name} {draw(_METADATA)}"
        listed = draw(st.lists(st.sampled_from(interfaces), unique=True)) if interfaces else []
        tail = f"implements {', '.join(listed)}" if listed else ""
        found.append(Declaration(header, draw(_body_items("", is_node=True)), tail=tail))
    for name in draw(st.lists(st.sampled_from(["E", "F"]), unique=True)) if nodes else []:
        ends = [draw(st.sampled_from(nodes)) for _ in range(2)]
        card = draw(st.sampled_from(["", "@card(0..4)", "@card(1..)"]))
        header = f"edge {name}: {ends[0]} -> {ends[1]} {card} {draw(_METADATA)}"
        found.append(Declaration(header, draw(_body_items("", is_node=False))))
    return Schema(tuple(found))


@st.composite
def respelled(draw: st.DrawFn, schema: Schema) -> Schema:
    """The same schema in another order, with comments and rename hints."""
    hint = st.sampled_from(["", '@rename_from("Old")', "/* c */", "// c\n"])
    declarations = []
    for declaration in draw(st.permutations(schema.declarations)):
        items = [
            item if item.startswith("@") else f"{item} {draw(hint)}"
            for item in draw(st.permutations(declaration.items))
        ]
        kind = declaration.header.split()[0]
        on_type = draw(hint) if kind != "interface" else ""
        declarations.append(replace(declaration, items=tuple(items), hint=on_type))
    return Schema(tuple(declarations))
