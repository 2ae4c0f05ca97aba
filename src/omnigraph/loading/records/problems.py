"""What is wrong with an input: one value per problem, with its place and a way out.

Problems are data and not exceptions, because a load that is asked to looks at its whole input
before it fails, and because they travel from the workers that find them to the one that reports.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

from omnigraph.errors import (
    ConstraintViolation,
    InputError,
    KeyConflict,
    OmnigraphError,
    ValueConversionError,
)
from omnigraph.model.ids import EntityKind

Grammar = Literal["strict", "compatible"]
"""How an input is framed and how forgiving it is read."""

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
"""What reports count by."""

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
    """What the records of an input are counted by."""
    return "line" if grammar == "strict" else "record"


@dataclass(frozen=True, slots=True)
class Place:
    """A record of an input: its line under the strict grammar, else its count."""

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
    """One thing that keeps an input from being loaded."""

    kind: ProblemKind
    message: str
    place: Place | None
    """None for what no single record is to blame for."""
    type_name: str | None = None
    property_name: str | None = None
    hint: str | None = None
    entity_id: str | None = None
    """The entity it is about, where a message alone would not do."""

    @property
    def text(self) -> str:
        """The line a person reads: `file:record: type.property: message`."""
        parts = [str(self.place or ""), self._subject(), self.message]
        return ": ".join(part for part in parts if part)

    def _subject(self) -> str:
        if self.type_name is None:
            return self.property_name or ""
        return (
            self.type_name
            if self.property_name is None
            else f"{self.type_name}.{self.property_name}"
        )

    def to_dict(self) -> dict[str, Any]:
        """The JSON form: one line of an error file."""
        return {
            "kind": self.kind,
            **self._place_dict(),
            "type": self.type_name,
            "property": self.property_name,
            "message": self.message,
            "hint": self.hint,
        }

    def _place_dict(self) -> dict[str, Any]:
        if self.place is None:
            return {"file": None}
        return {"file": self.place.source, self.place.unit: self.place.number}

    def to_error(self) -> InputError | KeyConflict:
        """The exception for a load that has only this problem."""
        if self.kind == "existing_id":
            place = None if self.place is None else str(self.place)
            return self._key_conflict(place=place)
        error = _ERRORS.get(self.kind, InputError)
        return error(self.text, hint=self.hint, details=self.to_dict())

    def to_error_of_several(self, message: str, kinds: Iterable[ProblemKind]) -> OmnigraphError:
        """The exception for a load that has other problems as well, of some kinds.

        If all are of one class it is of that class, so that callers need not look further.
        """
        if set(kinds) == {"existing_id"}:
            return self._key_conflict(message=message)
        classes = {_ERRORS.get(kind, InputError) for kind in kinds}
        error = classes.pop() if len(classes) == 1 else InputError
        return error(message, hint=self.hint)

    def _key_conflict(self, **said: str | None) -> KeyConflict:
        kind: EntityKind = "edge" if self.message.startswith("edge ") else "node"
        return KeyConflict(kind, self.type_name or "", self.entity_id or "", **said)


@dataclass(slots=True)
class ProblemLog:
    """Collects the problems of a whole input: the first ones in full, all of them counted."""

    keep: int = 100
    sink: Callable[[Problem], None] | None = None
    """Receives every problem, kept or not."""
    first: list[Problem] = field(default_factory=list)
    counts: Counter[ProblemKind] = field(default_factory=Counter)

    def extend(self, problems: Iterable[Problem]) -> None:
        """Take note of problems, in the order they are to be shown."""
        for problem in problems:
            self.counts[problem.kind] += 1
            if len(self.first) < self.keep:
                self.first.append(problem)
            if self.sink is not None:
                self.sink(problem)

    def raise_if_any(self) -> None:
        """Fail with everything found; one problem alone fails as itself."""
        total = self.counts.total()
        if not total:
            return
        error = self.first[0].to_error() if total == 1 else self._all(total)
        error.details["problems"] = [problem.to_dict() for problem in self.first]
        error.details["counts"] = dict(self.counts)
        raise error

    def _all(self, total: int) -> OmnigraphError:
        shown = [problem.text for problem in self.first]
        if total > len(shown):
            shown.append(f"… and {total - len(shown)} more")
        # Kinds of equal counts in one order, whichever was found first.
        by_count = sorted(self.counts.items(), key=lambda each: (-each[1], each[0]))
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in by_count)
        head = f"the input has {total} problems; nothing was written"
        message = "\n".join([head, *shown, f"by kind: {kinds}"])
        return self.first[0].to_error_of_several(message, self.counts)
