"""What the workers of the first pass answered, put together on the driver."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from omnigraph.errors import InputError, NotFound, SourceChanged
from omnigraph.loading.answers import Answer
from omnigraph.loading.records.problems import ProblemKind
from omnigraph.loading.records.rows import ambiguous_rename
from omnigraph.storage.written import fragment_rows


@dataclass(slots=True)
class Staged:
    """What the first pass gave back."""

    fragments: dict[str, list[str]] = field(default_factory=dict)
    """By type key, in the order of the input."""
    records: dict[int, int] = field(default_factory=dict)
    """How many records each piece has."""
    problems: list[dict[str, Any]] = field(default_factory=list)
    counts: Counter[ProblemKind] = field(default_factory=Counter)
    refused: dict[str, list[str]] = field(default_factory=dict)
    """By type key, ids of records that have problems of their own."""
    renamed: list[dict[str, Any]] = field(default_factory=list)
    named: set[str] = field(default_factory=set)
    """Type keys of which a record has an id or a key."""

    def rows(self, table_key: str) -> int:
        """How many rows of a type were written."""
        return sum(map(fragment_rows, self.fragments.get(table_key, ())))


def taken(answers: Sequence[Answer], staged: Staged) -> Staged:
    """What workers answered, by kind; a failure to read is raised."""
    for answer in answers:
        payload: Any = answer.payload
        match answer.kind:
            case "fragment":
                staged.fragments.setdefault(payload["table"], []).append(payload["fragment"])
            case "piece":
                staged.records[payload["piece"]] = payload["records"]
            case "problem":
                staged.problems.append(payload)
            case "counts":
                staged.counts.update(payload)
            case "refused":
                staged.refused.setdefault(payload["table"], []).extend(payload["ids"])
            case "renamed":
                staged.renamed.append(payload)
            case "named":
                staged.named.add(payload["table"])
            case "failure":
                raise _failure(payload)
    return staged


def renames_of(noted: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, str]]:
    """By node type, the canonical id of each id that was given in an older spelling."""
    renames: dict[str, dict[str, str]] = {}
    for each in noted:
        known = renames.setdefault(each["table"].partition(":")[2], {})
        for old, (canonical, _) in each["ids"].items():
            if known.setdefault(old, canonical) != canonical:
                raise InputError(
                    ambiguous_rename(old, known[old], canonical),
                    hint="give these nodes their canonical ids",
                )
    return renames


def _failure(payload: Mapping[str, Any]) -> Exception:
    error = {"not_found": NotFound, "changed": SourceChanged}.get(payload["kind"], InputError)
    failure: Exception = error(payload["message"], hint=payload["hint"], details=payload["details"])
    return failure
