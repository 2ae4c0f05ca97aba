"""Problems of an input, each with its place and a hint.

They are data, not exceptions: a load reports the problems of its whole input at once, and workers
send theirs to the driver.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import field, replace
from datetime import date
from difflib import get_close_matches
from math import isfinite
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from omnigraph.commit.validation.constraints import Holder, Violation
from omnigraph.errors import (
    ConstraintViolation,
    InputError,
    KeyConflict,
    OmnigraphError,
    ValueConversionError,
)
from omnigraph.model.ids import EntityKind, TableKey
from omnigraph.model.records import dataclass
from omnigraph.model.types import INTEGER_BOUNDS, Scalar, ValueType

if TYPE_CHECKING:
    from omnigraph.schema.catalog import TableType

Grammar = Literal["strict", "compatible"]
"""Rules for splitting an input into records, and for how leniently values are converted."""

ProblemKind = Literal[
    "invalid_json",
    "duplicate_member",
    "bad_record",
    "unknown_type",
    "unknown_field",
    "reserved_field",
    "bad_endpoint",
    "bad_id",
    "bad_value",
    "denied_blob",
    "repeated_key",
    "repeated_id",
    "constraint",
    "unique",
    "existing_id",
    "missing_node",
    "cardinality",
]
"""The kinds of problems, which reports count."""

_ERRORS: dict[ProblemKind, type[InputError]] = {
    "bad_value": ValueConversionError,
    "denied_blob": ValueConversionError,
    "repeated_key": ConstraintViolation,
    "constraint": ConstraintViolation,
    "unique": ConstraintViolation,
    "missing_node": ConstraintViolation,
    "cardinality": ConstraintViolation,
}


Unit = Literal["line", "record"]


def unit_of(grammar: Grammar) -> Unit:
    """The unit in which records are numbered: lines or records."""
    return "line" if grammar == "strict" else "record"


@dataclass(frozen=True, slots=True)
class RecordPlace:
    """The place of a record: its line under the strict grammar, else its number."""

    source: str | None
    """The file, or None for an input without a name."""
    number: int
    """From 1. Blank lines count as lines, and not as records."""
    unit: Unit

    def __str__(self) -> str:
        if self.source is None:
            return f"{self.unit} {self.number}"
        return f"{self.source}:{self.number}"


@dataclass(frozen=True, slots=True)
class Problem:
    """One reason why an input cannot be loaded."""

    kind: ProblemKind
    message: str
    place: RecordPlace | None
    """None if no single record is the cause."""
    type_name: str | None = None
    property_name: str | None = None
    hint: str | None = None
    entity_id: str | None = None
    """The entity concerned, for `KeyConflict`."""
    entity_kind: EntityKind = "node"
    """The kind of that entity."""
    input: object = None
    """The record as it was read, in JSON values; only if bad records are skipped."""
    ends_reading: bool = False
    """Whether the records after it cannot be read, so that it cannot be skipped."""

    @property
    def text(self) -> str:
        """The line a person reads: `file:record: type.property: message`."""
        subject = ".".join(filter(None, (self.type_name, self.property_name)))
        return ": ".join(filter(None, (str(self.place or ""), subject, self.message)))

    def to_dict(self, *, with_input: bool = False) -> dict[str, Any]:
        """The JSON form: a line of an error file; ``with_input`` adds the record."""
        place = self.place
        return {
            "kind": self.kind,
            "file": None if place is None else place.source,
            **({} if place is None else {place.unit: place.number}),
            "type": self.type_name,
            "property": self.property_name,
            "message": self.message,
            "hint": self.hint,
            **({"input": self.input} if with_input else {}),
        }

    def to_error(self) -> InputError | KeyConflict:
        """The exception for a load that has only this problem."""
        if self.kind == "existing_id":
            place = None if self.place is None else str(self.place)
            return self._key_conflict(place=place)
        error = _ERRORS.get(self.kind, InputError)
        return error(self.text, hint=self.hint, details=self.to_dict())

    def to_error_of_several(self, message: str, kinds: Iterable[ProblemKind]) -> OmnigraphError:
        """The exception for a load with several problems; of their class if they share one."""
        if set(kinds) == {"existing_id"}:
            return self._key_conflict(message=message)
        classes = {_ERRORS.get(kind, InputError) for kind in kinds}
        error = classes.pop() if len(classes) == 1 else InputError
        return error(message, hint=self.hint)

    def _key_conflict(self, **options: str | None) -> KeyConflict:
        return KeyConflict(self.entity_kind, self.type_name or "", self.entity_id or "", **options)


_LISTED_MAX = 10


def name_hint(word: str, known: Iterable[str], what: str) -> str:
    """The known name closest to a mistyped one, or a list of known names.

    >>> name_hint("persn", ["Person", "City"], "node types")
    "did you mean 'Person'?"
    >>> name_hint("x", ["Person", "City"], "node types")
    'the node types are City, Person'
    """
    return close_name(word, known) or _listing(sorted(known), what)


def close_name(word: str, known: Iterable[str]) -> str | None:
    """A hint that asks for the closest known name; None if no name is close."""
    name = closest(word, known)
    return None if name is None else f"did you mean '{name}'?"


def closest(word: str, known: Iterable[str]) -> str | None:
    """The known name closest to a mistyped one; None if none is close."""
    by_folded = {name.lower(): name for name in sorted(known)}
    close = get_close_matches(word.lower()[:200], by_folded, n=1)
    return by_folded[close[0]] if close else None


def _listing(names: list[str], what: str) -> str:
    if not names:
        return f"there are no {what}"
    more = ", …" if len(names) > _LISTED_MAX else ""
    return f"the {what} are {', '.join(names[:_LISTED_MAX])}{more}"


_WRITTEN = {
    Scalar.STRING: "write a text",
    Scalar.BOOL: "write true or false",
    Scalar.F32: "write a number, such as 1.5",
    Scalar.F64: "write a number, such as 1.5",
    Scalar.DATE: "write it as YYYY-MM-DD",
    Scalar.DATETIME: "write it as YYYY-MM-DDThh:mm:ssZ, or as YYYY-MM-DD",
    Scalar.BLOB: "give the bytes as base64: data",
}
_ITEMS = {
    Scalar.STRING: '["a", "b"]',
    Scalar.BOOL: "[true, false]",
    Scalar.F32: "[1.5, 2]",
    Scalar.F64: "[1.5, 2]",
    Scalar.DATE: '["2026-01-31"]',
    Scalar.DATETIME: '["2026-01-31T10:00:00Z"]',
}


def value_hint(type: ValueType) -> str:
    """How to write a value of ``type``.

    >>> value_hint(ValueType(Scalar.I32))
    'write a whole number from -2147483648 to 2147483647'
    """
    if type.is_vector:
        return f"write a JSON array of {type.vector_dim} numbers"
    if type.is_list:
        return f"write a JSON array, such as {_ITEMS.get(type.scalar, '[1, 2]')}"
    if type.scalar in INTEGER_BOUNDS:
        low, high = INTEGER_BOUNDS[type.scalar]
        return f"write a whole number from {low} to {high}"
    return _WRITTEN[type.scalar]


MAX_ERRORS = 100
"""The default number of problems that are shown in full."""

_SLACK = 4
"""Problems are sorted and cut when this many times the number to show have been added."""

_LISTED_AT_ONCE = 10_000
"""Problems sorted together before they are written: an error file with fewer is fully sorted."""

Order = tuple[int, int]
"""The sort key of a problem: the number of its file or piece, and that of its record."""

NOWHERE: Order = (-1, 0)
"""The sort key of problems without a place, which come first."""

_Placed = tuple[Order, Problem]


@dataclass(slots=True)
class FirstProblems:
    """The first ``keep`` problems in input order, found in any order."""

    keep: int
    _kept: list[_Placed] = field(default_factory=list)

    def add(self, order: Order, problem: Problem) -> None:
        """Add a problem."""
        self._kept.append((order, problem))
        if len(self._kept) > _SLACK * max(1, self.keep):
            self._cut()

    def in_order(self) -> list[_Placed]:
        """The first ``keep`` problems."""
        self._cut()
        return self._kept

    def _cut(self) -> None:
        self._kept.sort(key=_in_input)
        del self._kept[self.keep :]


@dataclass(slots=True)
class Findings:
    """The problems of a whole input: the first ones in full, all of them counted."""

    keep: int
    errors_out: Path | None = None
    """The error file: receives every problem."""
    sources: Sequence[str | None] = ()
    """The names of the inputs, in the order in which problems are reported."""
    with_inputs: bool = False
    """Whether problems are reported with their records."""
    counts: Counter[ProblemKind] = field(default_factory=Counter)
    _first: FirstProblems = field(init=False)
    _order: dict[str | None, int] = field(init=False)
    _unwritten: list[_Placed] = field(default_factory=list)
    _stream: IO[str] | None = None

    def __post_init__(self) -> None:
        self._first = FirstProblems(self.keep)
        self._order = {name: number for number, name in reversed([*enumerate(self.sources)])}

    def note(self, problem: Problem) -> None:
        """Count a problem, and `add` it."""
        self.counts[problem.kind] += 1
        self.add(problem)

    def add(self, problem: Problem, *, listed: bool = True) -> None:
        """Add a problem; ``listed``: to the error file as well."""
        self._first.add(self._place_of(problem), problem)
        if listed:
            self.list(problem)

    def list(self, problem: Problem) -> None:
        """Add a problem to the error file, if there is one."""
        if self.errors_out is None:
            return
        self._unwritten.append((self._place_of(problem), problem))
        if len(self._unwritten) >= _LISTED_AT_ONCE:
            self._write(self.errors_out)

    def _place_of(self, problem: Problem) -> Order:
        place = problem.place
        if place is None:
            return NOWHERE
        return self._order.setdefault(
            place.source, len(self._order) + len(self.sources)
        ), place.number

    def _write(self, path: Path) -> None:
        if self._stream is None:
            self._stream = path.open("w", encoding="utf-8")
        for _, problem in sorted(self._unwritten, key=_in_input):
            self._stream.write(json.dumps(self.shown(problem), ensure_ascii=False) + "\n")
        self._unwritten.clear()

    def shown(self, problem: Problem) -> dict[str, Any]:
        """A problem in the form of the error file and of the error."""
        return problem.to_dict(with_input=self.with_inputs)

    @property
    def first(self) -> Sequence[Problem]:
        """The first problems, in the order of the input."""
        return [problem for _, problem in self._first.in_order()]

    def close(self) -> None:
        """Write the remaining problems, and close the error file."""
        if self.errors_out is not None and self._unwritten:
            self._write(self.errors_out)
        if self._stream is not None:
            self._stream.close()

    def raise_if_any(self, reason: str = "") -> None:
        """Raise one error with all problems; a single problem raises its own class.

        ``reason`` says why the problems could not be skipped.
        """
        self.close()
        if not self.counts:
            return
        first = self.first
        total = self.counts.total()
        alone = total == 1 and not reason
        error = first[0].to_error() if alone else self._all(first, total, reason)
        error.details["problems"] = [self.shown(problem) for problem in first]
        error.details["counts"] = dict(self.counts)
        raise error

    def _all(self, first: Sequence[Problem], total: int, reason: str) -> OmnigraphError:
        shown = [problem.text for problem in first]
        if total > len(shown):
            shown.append(f"… and {total - len(shown)} more")
        # Ties are sorted by kind, so that the message is deterministic.
        by_count = sorted(self.counts.items(), key=lambda each: (-each[1], each[0]))
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in by_count)
        some = f"{total} problem{'s' * (total != 1)}"
        head = f"the input has {some}{reason}; nothing was written"
        message = "\n".join([head, *shown, f"by kind: {kinds}"])
        return first[0].to_error_of_several(message, self.counts)


def _in_input(placed: _Placed) -> tuple[Order, str]:
    order, problem = placed
    return order, problem.property_name or ""


# --- records --------------------------------------------------------------------------------------


def with_inputs(problems: Iterable[Problem], inputs: Callable[[int], object]) -> list[Problem]:
    """Problems with their records, which ``inputs`` gives by number, unless they have a text."""
    return [
        each
        if each.place is None or each.input is not None
        else replace(each, input=plain(inputs(each.place.number)))
        for each in problems
    ]


def plain(value: object) -> object:
    """A value of a record, converted to JSON values."""
    match value:
        case dict():
            return {str(name): plain(item) for name, item in value.items()}
        case list() | tuple():
            return [plain(item) for item in value]
        case float():
            return value if isfinite(value) else str(value)
        case bytes():
            return f"base64:{b64encode(value).decode()}"
        case str() | int() | None:
            return value
        case date():
            return value.isoformat()
        case _:
            return str(value)


# --- violations -----------------------------------------------------------------------------------


class PlaceOf(Protocol):
    """Finds the record to show for a row that breaks a constraint."""

    def __call__(self, table_key: str, holder: Holder, *, own: bool) -> RecordPlace | None:
        """The place of the row's ``own`` record, else of the first record of its entity."""


def problems_of(violations: Iterable[Violation], place_of: PlaceOf) -> Iterator[Problem]:
    """Violations of multi-row constraints as problems, with the place of the record to show."""
    stranded: set[tuple[str, str | None, str | None]] = set()
    for each in violations:
        if each.is_stranded:
            # An edge whose two ends are the same missing node is reported once.
            edge = (each.type_name, each.entity_id, each.missing_id)
            if edge in stranded:
                continue
            stranded.add(edge)
        yield problem_of(each, place_of)


def problem_of(violation: Violation, place_of: PlaceOf) -> Problem:
    """A violation as a problem, with the place of the record to show."""
    key, message, hint, place = violation.table_key, violation.sentence, violation.hint, None
    if violation.holder is not None:
        place = place_of(key, violation.holder, own=violation.first is not None)
    if violation.first is not None:
        # Both records have the same id: their places tell them apart.
        message = f"{message}, in {place_of(key, violation.first, own=True)} and {place}"
        if violation.repeats > 2:
            also = f"{violation.repeats:,} records have it"
            hint = also if hint is None else f"{also}; {hint}"
    return Problem(
        violation.report,
        message,
        place,
        violation.type_name,
        violation.property_name,
        hint,
        violation.entity_id,
        TableKey(key).kind,
    )


# --- the records of one type ----------------------------------------------------------------------


class RefusedValue(NamedTuple):
    """An input value that an expression of a mapping could not convert."""

    number: int
    """The number of the record."""
    member: str
    message: str
    hint: str


class RecordProblems:
    """Collects the problems of a batch of records of one type."""

    def __init__(
        self, type: TableType, source: str | None, unit: Unit, numbers: Sequence[int]
    ) -> None:
        self.problems: list[Problem] = []
        self.bad: set[int] = set()
        """Positions of records that have a problem."""
        self._reported: set[tuple[int, str | None]] = set()
        self._type = type
        self.source = source
        self.unit = unit
        self.numbers = numbers

    def add(
        self, position: int, kind: ProblemKind, message: str, member: str | None, hint: str
    ) -> None:
        """Add a problem of the record at ``position``, unless the value has one already."""
        if (position, member) in self._reported:
            return
        self._reported.add((position, member))
        self.bad.add(position)
        self.add_at(self.numbers[position], kind, message, member, hint)

    def add_at(
        self, number: int, kind: ProblemKind, message: str, member: str | None, hint: str
    ) -> None:
        """Add a problem of the record with this number."""
        place = RecordPlace(self.source, number, self.unit)
        self.problems.append(Problem(kind, message, place, self._type.name, member, hint))

    def refuse(self, values: Sequence[RefusedValue]) -> None:
        """Add problems of values that a mapping refused; their records are dropped."""
        places = {number: at for at, number in enumerate(self.numbers)} if values else {}
        for each in values:
            if each.number in places:
                position = places[each.number]
                self.add(position, "bad_value", each.message, each.member, each.hint)
            else:
                self.add_at(each.number, "bad_value", each.message, each.member, each.hint)

    def rename(
        self, renamed: dict[str, tuple[str, int]], old: str, canonical: str, number: int
    ) -> None:
        """Map ``old`` to ``canonical``; adds a problem if it already maps to another node."""
        known, _ = renamed.setdefault(old, (canonical, number))
        if known != canonical:
            place = RecordPlace(self.source, number, self.unit)
            self.problems.append(ambiguous_id(old, known, canonical, self._type.name, place))


def ambiguous_id(old: str, first: str, second: str, type_name: str, place: RecordPlace) -> Problem:
    """The problem of an id in an older spelling that denotes two nodes."""
    message = f"id '{old}' means both '{first}' and '{second}': ambiguous edge endpoint remap"
    return Problem(
        "bad_id", message, place, type_name, "id", "give these nodes their canonical ids"
    )
