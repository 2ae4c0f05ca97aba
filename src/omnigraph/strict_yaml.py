"""Strict YAML of policies, pipelines and settings: no unknown keys, few implicit types.

A misspelt key is an error, because a rule that silently lost its scope would allow too much. Every
value keeps its position and path for messages. Only `true` and `false` are booleans; `no`, `on` and
`True` are texts, as are dates.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

from omnigraph.errors import InputError
from omnigraph.model.records import dataclass
from omnigraph.syntax.suggest import did_you_mean

DEPTH_MAX = 32

_QUOTE_IT = "put it in quotes to make it a text"
_PLAIN_KINDS = (
    ("nothing", re.compile(r"|~|null|Null|NULL")),
    ("a boolean", re.compile(r"true|false")),
    ("an integer", re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")),
    (
        "a number",
        re.compile(
            r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.nan"
        ),
    ),
)


@dataclass(frozen=True, slots=True)
class Plain:
    """An unquoted scalar other than a text, as written."""

    spelling: str
    kind: str


@dataclass(frozen=True, slots=True)
class Node:
    """A value of a document, with its position and its path."""

    value: str | Plain | list[Node] | dict[str, Node]
    place: str
    path: str
    error: type[InputError]
    """The class for errors of the document."""

    def fail(
        self, problem: str, *, hint: str | None = None, is_duplicate: bool = False
    ) -> NoReturn:
        """Raise the document's error for this position; its details have the path."""
        details: dict[str, Any] = {"path": self.path}
        if is_duplicate:
            details["duplicate_key"] = True
        raise self.error(f"{self.place}: {problem}", hint=hint, details=details)

    def fields(
        self, *, required: Collection[str] = (), optional: Collection[str] = ()
    ) -> Mapping[str, Node]:
        """The values by key: all ``required`` ones, and no others than these and ``optional``."""
        fields = self.mapping()
        known = [*required, *optional]
        for key, node in fields.items():
            if key not in known:
                node.fail(
                    f"unknown key `{node.path}`",
                    hint=did_you_mean(key, known) or f"the keys here are {', '.join(known)}",
                )
        for key in required:
            if key not in fields:
                self.fail(f"{self.label} needs the key `{key}`")
        return fields

    def mapping(self) -> Mapping[str, Node]:
        """The values by key, with any keys."""
        return self.value if isinstance(self.value, dict) else self._wrong("a mapping")

    def items(self) -> list[Node]:
        """The values of a list."""
        return self.value if isinstance(self.value, list) else self._wrong("a list")

    def text(self) -> str:
        """A text that is not blank."""
        if not isinstance(self.value, str):
            hint = _QUOTE_IT if isinstance(self.value, Plain) else None
            self._wrong("a text", hint)
        if not self.value.strip():
            self.fail(f"{self.label} is blank")
        return self.value

    def flag(self) -> bool:
        """A boolean."""
        if not isinstance(self.value, Plain) or self.value.kind != "a boolean":
            self.fail(f"{self.label} must be true or false")
        return self.value.spelling == "true"

    @property
    def label(self) -> str:
        """The name of the value in messages."""
        return f"`{self.path}`" if self.path else "the document"

    def _wrong(self, wanted: str, hint: str | None = None) -> NoReturn:
        self.fail(f"{self.label} must be {wanted}, not {_shown(self.value)}", hint=hint)


def plain_value(node: Node) -> Any:
    """Convert a value to JSON types."""
    match node.value:
        case str() as text:
            return text
        case list() as items:
            return [plain_value(item) for item in items]
        case dict() as fields:
            return {key: plain_value(value) for key, value in fields.items()}
        case Plain(spelling, kind):
            return _plain_scalar(spelling, kind)


def _plain_scalar(spelling: str, kind: str) -> Any:
    match kind:
        case "nothing":
            return None
        case "a boolean":
            return spelling == "true"
        case "an integer":
            return int(spelling, 0) if spelling[:2] in ("0x", "0o") else int(spelling)
    return float(spelling.replace(".inf", "inf").replace(".nan", "nan"))


def read_document(source: str | Path, error: type[InputError]) -> Node:
    """The single document of a YAML text, or of the file at a path.

    Raises ``error`` if it is not strict YAML, and `OSError` for an unreadable file.
    """
    name = str(source) if isinstance(source, Path) else "<text>"
    text = _decoded(source.read_bytes(), name, error) if isinstance(source, Path) else source
    return _Builder(_events(text, name, error), error).document()


def _decoded(data: bytes, name: str, error: type[InputError]) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        raise error(f"{name}: byte {problem.start} is not UTF-8") from problem


def _shown(value: str | Plain | list[Node] | dict[str, Node]) -> str:
    match value:
        case str():
            return "a text"
        case Plain(kind="nothing"):
            return "nothing"
        case Plain(spelling, kind):
            return f"{kind} (`{spelling}`)"
        case list():
            return "a list"
    return "a mapping"


# --- from events to nodes -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Event:
    kind: str
    """The name of the parser's class without `Event`."""
    place: str
    tag: str | None
    text: str
    is_quoted: bool


def _events(text: str, name: str, error: type[InputError]) -> Iterator[_Event]:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    try:
        events: Iterator[Any] = YAML(typ="safe", pure=True).parse(text)
        for event in events:
            at = event.start_mark
            yield _Event(
                type(event).__name__.removesuffix("Event"),
                f"{name}:{at.line + 1}:{at.column + 1}",
                getattr(event, "tag", None),
                getattr(event, "value", None) or "",
                getattr(event, "style", None) is not None,
            )
    except MarkedYAMLError as problem:
        mark = problem.problem_mark
        place = f":{mark.line + 1}:{mark.column + 1}" if mark is not None else ""
        raise error(f"{name}{place}: {problem.problem}") from problem
    except YAMLError as problem:
        raise error(f"{name}: not valid YAML: {problem}") from problem


class _Builder:
    """Builds the tree of nodes from the events of one text."""

    def __init__(self, events: Iterator[_Event], error: type[InputError]) -> None:
        self._events = events
        self._error = error

    def document(self) -> Node:
        next(self._events)  # the start of the stream
        start = next(self._events)
        if start.kind == "StreamEnd":
            return Node(Plain("", "nothing"), start.place, "", self._error)
        root = self._node(next(self._events), "", 0)
        next(self._events)  # the end of the document
        another = next(self._events)
        if another.kind != "StreamEnd":
            raise self._error(f"{another.place}: a second document; only one is read")
        return root

    def _node(self, event: _Event, path: str, depth: int) -> Node:
        place = Node("", event.place, path, self._error)
        if depth > DEPTH_MAX:
            place.fail(f"nested more than {DEPTH_MAX} levels deep")
        if event.kind == "Alias":
            place.fail(f"{place.label} is an alias", hint="write the value out")
        if event.tag is not None:
            place.fail(f"{place.label} has the tag `{event.tag}`", hint="leave the tag out")
        match event.kind:
            case "SequenceStart":
                return replace(place, value=list(self._items(path, depth)))
            case "MappingStart":
                return replace(place, value=self._fields(path, depth))
        if any("\ud800" <= character <= "\udfff" for character in event.text):
            place.fail(f"{place.label} has half of a surrogate pair, which is no character")
        return replace(place, value=_scalar(event))

    def _items(self, path: str, depth: int) -> Iterator[Node]:
        at = 0
        while (event := next(self._events)).kind != "SequenceEnd":
            yield self._node(event, f"{path}[{at}]", depth + 1)
            at += 1

    def _fields(self, path: str, depth: int) -> dict[str, Node]:
        fields: dict[str, Node] = {}
        while (event := next(self._events)).kind != "MappingEnd":
            key = self._node(event, path, depth + 1)
            if not isinstance(key.value, str):
                hint = _QUOTE_IT if isinstance(key.value, Plain) else None
                key.fail(f"a key of {key.label} is {_shown(key.value)}, not a text", hint=hint)
            inner = f"{path}.{key.value}" if path else key.value
            if key.value in fields:
                replace(key, path=inner).fail(
                    f"duplicate key `{inner}`", hint="keep one of the two", is_duplicate=True
                )
            value = self._node(next(self._events), inner, depth + 1)
            # Report problems of a value at its key.
            fields[key.value] = replace(value, place=key.place)
        return fields


def _scalar(event: _Event) -> str | Plain:
    if not event.is_quoted:
        for kind, spelled in _PLAIN_KINDS:
            if spelled.fullmatch(event.text):
                return Plain(event.text, kind)
    return event.text
