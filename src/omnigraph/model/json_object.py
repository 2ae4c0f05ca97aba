"""One definition per answer: JSON, JSON schema and parsing, all from the fields of a class.

A receipt or an answer is a frozen dataclass that inherits `JsonObject`. Its fields are the members
of the JSON object, in their order; `Json` in an annotation describes any difference, and `computed`
names properties that are members as well. The server encodes answers with `to_dict`, the client
parses them with `from_dict`, the command line prints them with `--json`, and OpenAPI describes them
with `json_schema`: none of them lists a member again.
"""

from __future__ import annotations

import ast
import inspect
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, fields
from enum import StrEnum
from itertools import pairwise
from textwrap import dedent
from typing import (
    Annotated,
    Any,
    ClassVar,
    Literal,
    Self,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from omnigraph.model.records import dataclass
from omnigraph.model.text_table import html_facts

ALWAYS = object()
"""A member that is never left out."""


@dataclass(frozen=True, slots=True)
class Json:
    """How a field appears in the JSON object, if not as a member of the same name."""

    name: str | None = None
    """The name of the member, if it differs."""
    within: str | None = None
    """The inner object that contains the member."""
    unless: object = ALWAYS
    """The value (None, False or an empty tuple) for which the member is left out."""
    is_hidden: bool = False
    """Whether it is not a member at all."""
    is_flat: bool = False
    """Whether the members of its value are inlined instead of being an inner object."""
    is_plain: bool = False
    """Whether its value consists of JSON values already, so that nothing is copied."""


HIDDEN = Json(is_hidden=True)
OPTIONAL = Json(unless=None)
"""Left out when it is None."""
PLAIN = Json(is_plain=True)

Encode = Callable[[Any], Any]
Schema = dict[str, Any]


class JsonObject:
    """A frozen dataclass with a JSON form."""

    __slots__ = ()

    computed: ClassVar[Mapping[str, Json]] = {}
    """Properties that are members of the JSON object; they are not read back."""

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        out: dict[str, Any] = {}
        for attribute, key, unless, encode, place in _form(type(self)).steps:
            value = getattr(self, attribute)
            if value is unless:
                continue
            if encode is not None:
                value = encode(value)
            if place is None:
                out[key] = value
            elif place is _FLAT:
                out.update(value)
            else:
                out.setdefault(place, {})[key] = value
        return out

    def _repr_html_(self) -> str:
        """The members as a table for notebooks, with readable times."""
        return html_facts(type(self).__name__, self.to_dict())

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Self:
        """The value for a JSON object; unknown members are ignored.

        Raises `KeyError` for a missing member and `TypeError` for one of another type.
        """
        form = _form(cls)
        given: dict[str, Any] = dict.fromkeys(form.hidden)
        for member in form.members:
            if not member.is_field:
                continue
            if member.is_flat:
                inner, is_optional = _without_null(member.type)
                is_there = not is_optional or any(m.key in document for m in _members(inner))
                given[member.attribute] = member.decode(document) if is_there else None
                continue
            place = document if member.within is None else document[member.within]
            if member.key in place:
                given[member.attribute] = member.decode(place[member.key])
            elif member.default is not MISSING:
                given[member.attribute] = member.default
            else:
                raise KeyError(member.key)
        return cls(**given)


@dataclass(frozen=True, slots=True)
class _Member:
    """One member of a JSON object."""

    attribute: str
    key: str
    within: str | None
    unless: object
    is_flat: bool
    is_field: bool
    default: object
    """The value of a missing member; `MISSING` if the member is required."""
    type: Any
    encode: Encode | None
    """None if the value is JSON already."""
    decode: Encode


_FLAT = "*"
"""The key under which the members of a flat value are collected."""


@dataclass(frozen=True, slots=True)
class _Form:
    """The JSON form of a class, derived from its fields once."""

    members: tuple[_Member, ...]
    hidden: tuple[str, ...]
    """Fields that are not members and have no default: parsing sets them to None."""
    steps: tuple[tuple[str, str, object, Encode | None, str | None], ...]
    """Attribute, key, value to leave out, encoder and inner object of each member."""


_FORMS: dict[type, _Form] = {}


def _form(cls: type[JsonObject]) -> _Form:
    found = _FORMS.get(cls)
    if found is None:
        members = _read_members(cls)
        steps = tuple(
            (m.attribute, m.key, m.unless, m.encode, _FLAT if m.is_flat else m.within)
            for m in members
        )
        found = _FORMS[cls] = _Form(members, _hidden_without_default(cls), steps)
    return found


def _members(cls: type[JsonObject]) -> tuple[_Member, ...]:
    return _form(cls).members


def _read_members(cls: type[JsonObject]) -> tuple[_Member, ...]:
    hints = get_type_hints(cls, include_extras=True)
    found = []
    for field in fields(cls):  # type: ignore[arg-type]  # every subclass is a dataclass
        type_, form = _annotated(hints[field.name])
        if form.is_hidden:
            continue
        default = field.default if form.unless is ALWAYS else form.unless
        found.append(_member(field.name, type_, form, is_field=True, default=default))
    for name, form in cls.computed.items():
        getter = inspect.getattr_static(cls, name).fget
        found.append(_member(name, get_type_hints(getter)["return"], form, is_field=False))
    return tuple(found)


def _member(
    attribute: str, type_: Any, form: Json, *, is_field: bool, default: object = MISSING
) -> _Member:
    encode, decode = (None, _same) if form.is_plain else _codec(type_)
    return _Member(
        attribute,
        form.name or attribute,
        form.within,
        form.unless,
        form.is_flat,
        is_field,
        default,
        type_,
        encode,
        decode,
    )


def _hidden_without_default(cls: type[JsonObject]) -> tuple[str, ...]:
    hints = get_type_hints(cls, include_extras=True)
    return tuple(
        field.name
        for field in fields(cls)  # type: ignore[arg-type]
        if field.default is MISSING and _annotated(hints[field.name])[1].is_hidden
    )


def _annotated(hint: Any) -> tuple[Any, Json]:
    if get_origin(hint) is Annotated:
        type_, *notes = get_args(hint)
        return type_, next((note for note in notes if isinstance(note, Json)), Json())
    return hint, Json()


# --- values ---------------------------------------------------------------------------------------

_SCALARS: Mapping[type, tuple[tuple[type, ...], str]] = {
    str: ((str,), "string"),
    bool: ((bool,), "boolean"),
    int: ((int,), "integer"),
    float: ((float, int), "number"),
}


def _codec(type_: Any) -> tuple[Encode | None, Encode]:
    """The encoder and the decoder of a type."""
    if type_ is Any:
        return None, _same
    if isinstance(type_, type) and issubclass(type_, JsonObject):
        return _to_dict, type_.from_dict
    if isinstance(type_, type) and issubclass(type_, StrEnum):
        return str, type_
    if type_ in _SCALARS:
        return None, _checked(_SCALARS[type_][0])
    origin, arguments = get_origin(type_), get_args(type_)
    if origin is Literal:
        return None, _checked((str,))
    if origin is tuple:
        return _list_codec(arguments[0])
    if origin in (dict, Mapping) or (isinstance(origin, type) and issubclass(origin, Mapping)):
        return dict, dict
    if origin in (Union, types.UnionType):
        # Of several classes the first decodes them all: its `from_dict` chooses.
        encode, decode = _codec(next(each for each in arguments if each is not type(None)))
        return (
            None if encode is None else lambda value: None if value is None else encode(value),
            lambda value: None if value is None else decode(value),
        )
    raise TypeError(f"a field of type {type_} has no JSON form")


def _list_codec(item: Any) -> tuple[Encode, Encode]:
    encode, decode = _codec(item)
    return (
        list if encode is None else lambda values: [encode(value) for value in values],
        lambda values: tuple(decode(value) for value in values),
    )


def _same(value: Any) -> Any:
    return value


def _to_dict(value: JsonObject) -> dict[str, Any]:
    return value.to_dict()


def _checked(kinds: tuple[type, ...]) -> Encode:
    def check(value: Any) -> Any:
        if not isinstance(value, kinds):
            raise TypeError(f"{value!r} is not of type {kinds[0].__name__}")
        return value

    return check


# --- schemas --------------------------------------------------------------------------------------


def json_schema(cls: type[JsonObject], definitions: dict[str, Schema], prefix: str) -> Schema:
    """A reference to the JSON schema of an answer, which is added to ``definitions`` by its name.

    ``prefix`` is the path of definitions in the document. Descriptions are the docstrings of the
    class and of its fields. A reader must ignore members that are not listed.
    """
    if cls.__name__ not in definitions:
        definitions[cls.__name__] = {}  # a class may contain itself
        schema: Schema = {"type": "object", "properties": {}}
        if cls.__doc__ is not None:
            schema["description"] = inspect.cleandoc(cls.__doc__)
        _describe(cls, schema, definitions, prefix)
        definitions[cls.__name__].update(schema)
    return {"$ref": prefix + cls.__name__}


def _describe(
    cls: type[JsonObject], schema: Schema, definitions: dict[str, Schema], prefix: str
) -> None:
    """Add the members of a class to an object schema."""
    about = _descriptions(cls)
    for member in _members(cls):
        if member.is_flat:
            inner, is_optional = _without_null(member.type)
            required = list(schema.get("required", ()))
            _describe(inner, schema, definitions, prefix)
            if is_optional:
                schema["required"] = required
            continue
        place = schema
        if member.within is not None:
            _require(schema, member.within)
            place = schema["properties"].setdefault(
                member.within, {"type": "object", "properties": {}}
            )
        type_ = _without_null(member.type)[0] if member.unless is None else member.type
        described = _type_schema(type_, definitions, prefix)
        if text := about.get(member.attribute):
            described = {**described, "description": text}
        place["properties"][member.key] = described
        if member.unless is ALWAYS:
            _require(place, member.key)


def _require(schema: Schema, key: str) -> None:
    required = schema.setdefault("required", [])
    if key not in required:
        required.append(key)


def _type_schema(type_: Any, definitions: dict[str, Schema], prefix: str) -> Schema:
    if type_ is Any:
        return {}
    if type_ is type(None):
        return {"type": "null"}
    if isinstance(type_, type) and issubclass(type_, JsonObject):
        return json_schema(type_, definitions, prefix)
    if isinstance(type_, type) and issubclass(type_, StrEnum):
        return {"type": "string", "enum": [each.value for each in type_]}
    if type_ in _SCALARS:
        return {"type": _SCALARS[type_][1]}
    origin, arguments = get_origin(type_), get_args(type_)
    if origin is Literal:
        return {"type": "string", "enum": list(arguments)}
    if origin in (tuple, list):
        return {"type": "array", "items": _type_schema(arguments[0], definitions, prefix)}
    if origin in (Union, types.UnionType):
        return {"anyOf": [_type_schema(each, definitions, prefix) for each in arguments]}
    return {
        "type": "object",
        "additionalProperties": _type_schema(arguments[1], definitions, prefix) or True,
    }


def _without_null(type_: Any) -> tuple[Any, bool]:
    """A type without None, and whether it included None."""
    kinds = [each for each in get_args(type_) if each is not type(None)]
    if get_origin(type_) not in (Union, types.UnionType) or len(kinds) == len(get_args(type_)):
        return type_, False
    return (kinds[0] if len(kinds) == 1 else Union[tuple(kinds)]), True  # noqa: UP007


def _descriptions(cls: type[JsonObject]) -> dict[str, str]:
    """The docstrings below the fields of a class, and the first lines of its properties."""
    found: dict[str, str] = {}
    for kind in reversed(cls.__mro__):
        if issubclass(kind, JsonObject) and kind is not JsonObject:
            found.update(_below_fields(kind))
    for name in cls.computed:
        text = inspect.getdoc(inspect.getattr_static(cls, name)) or ""
        found[name] = text.partition("\n")[0]
    return {name: text.replace("``", "`") for name, text in found.items()}


def _below_fields(kind: type) -> Iterator[tuple[str, str]]:
    (tree,) = ast.parse(dedent(inspect.getsource(kind))).body
    assert isinstance(tree, ast.ClassDef)
    for statement, below in pairwise(tree.body):
        match statement, below:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=text)):
                yield name, " ".join(str(text).split())
