"""Checks of a change request: queries with expected results.

`checks.yaml` is in the folder of the queries' `.gq` files:

    checks:
      - name: no_orphans
        query: orphans
        expect: empty
      - name: enough_people
        query: people
        params: { country: NO }
        expect: { min: 10, max: 5000 }
        timeout_seconds: 20

The checks of pipeline files are supported, too. They name the file of their query, as checks of
`checks.yaml` may.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

from omnigraph.errors import InputError, OmnigraphError, QueryCancelled
from omnigraph.model.records import dataclass
from omnigraph.model.result import Result
from omnigraph.model.reviews import (
    CHECK_NAME_CHARACTERS_MAX,
    CHECK_ROWS_MAX,
    TEXT_CHARACTERS_MAX,
    CheckState,
    kept_rows,
)
from omnigraph.strict_yaml import Node, plain_value, read_document

FILE_NAME = "checks.yaml"
SUFFIXES = (".yaml", ".yml")
TIMEOUT_SECONDS = 60.0
CHECKS_MAX = 200
IS_PIPELINE = "sources"
"""A key that pipeline files have and checks files lack."""

_EXPECTED = re.compile(r"empty|nonempty|rows\((?P<rows>[0-9]+)\)|value\((?P<value>.+)\)")


@dataclass(frozen=True, slots=True)
class Expected:
    """An expected result: a number of rows, or one row with one value."""

    rows_min: int = 0
    rows_max: int | None = 0
    """None for no limit."""
    value: tuple[Any, ...] = ()
    """The expected value, if any."""

    @classmethod
    def of(cls, text: str) -> Expected:
        """Parse an expectation; raises `ValueError`.

        >>> Expected.of("rows(3)"), Expected.of("nonempty").rows_max
        (Expected(rows_min=3, rows_max=3, value=()), None)
        """
        found = _EXPECTED.fullmatch(text.strip())
        if found is None:
            raise ValueError(f"`{text}` is no expectation: empty, nonempty, rows(N) or value(X)")
        if found["rows"] is not None:
            return cls(int(found["rows"]), int(found["rows"]))
        if found["value"] is not None:
            return cls(1, 1, (_literal(found["value"]),))
        return cls() if found[0] == "empty" else cls(1, None)

    def is_met(self, rows: int, first: Mapping[str, Any] | None) -> bool:
        """Whether a result with this number of rows is as expected; ``first`` is the first row."""
        if rows < self.rows_min or (self.rows_max is not None and rows > self.rows_max):
            return False
        return not self.value or tuple((first or {}).values()) == self.value

    def __str__(self) -> str:
        if self.value:
            return f"one row with {self.value[0]!r}"
        if self.rows_max is None:
            return f"at least {self.rows_min}"
        if self.rows_min == self.rows_max:
            return "none" if self.rows_max == 0 else f"{self.rows_max}"
        return f"{self.rows_min} to {self.rows_max}"


def _literal(text: str) -> Any:
    """A text parsed as JSON, or else the text."""
    try:
        return json.loads(text)
    except ValueError:
        return text


@dataclass(frozen=True, slots=True)
class DeclaredCheck:
    """A query with its expected result."""

    name: str
    query: str | None
    """A stored query, or a query of ``file``; None for the only one in it."""
    params: Mapping[str, Any] = field(default_factory=dict)
    expected: Expected = Expected()
    timeout_seconds: float = TIMEOUT_SECONDS
    file: Path | None = None

    def judged(self, rows: int, first: Mapping[str, Any] | None) -> tuple[CheckState, str]:
        """Whether a result is as expected, with a message."""
        asked = self.query or ("the query" if self.file is None else self.file.name)
        found = f"`{asked}` returned {rows} row{'' if rows == 1 else 's'}"
        is_fine = self.expected.is_met(rows, first)
        return ("passed", found) if is_fine else ("failed", f"{found}, expected {self.expected}")


def checks_files(paths: Iterable[Path]) -> list[Path]:
    """The checks files among or beside some paths, which are directories and files of queries."""
    found: dict[Path, None] = {}
    for path in paths:
        if path.suffix in SUFFIXES:
            found[path] = None
        else:
            beside = (path if path.is_dir() else path.parent) / FILE_NAME
            if beside.is_file():
                found[beside] = None
    return list(found)


def stored_checks(paths: Iterable[Path]) -> tuple[DeclaredCheck, ...]:
    """The checks beside stored queries; raises `InputError` for duplicate names."""
    found: dict[str, DeclaredCheck] = {}
    for file in checks_files(paths):
        for check in load_checks(file):
            if check.name in found:
                raise InputError(f"two checks are called '{check.name}'", hint="rename one of them")
            found[check.name] = check
    return tuple(found.values())


def load_checks(source: Path | str) -> tuple[DeclaredCheck, ...]:
    """The checks of a checks file or a pipeline; raises `InputError` with a position.

    ``source`` may also be a text, whose file names are relative to the working directory.

    Raises `OSError` for a file that cannot be read.
    """
    document = read_document(source, InputError)
    path = source if isinstance(source, Path) else Path(FILE_NAME)
    is_pipeline = isinstance(document.value, dict) and IS_PIPELINE in document.value
    if is_pipeline:
        fields = document.mapping()
        if "checks" not in fields:
            return ()
    else:
        fields = document.fields(required=("checks",), optional=("version",))
    checks: dict[str, DeclaredCheck] = {}
    nodes = fields["checks"].items()
    if len(nodes) > CHECKS_MAX:
        fields["checks"].fail(f"there are {len(nodes)} checks, at most {CHECKS_MAX} are run")
    for node in nodes:
        check = _check(node, path, ("file",) if is_pipeline else ("query",))
        if check.name in checks:
            node.fail(f"two checks are called `{check.name}`")
        checks[check.name] = check
    return tuple(checks.values())


def _check(node: Node, path: Path, required: tuple[str, ...]) -> DeclaredCheck:
    fields = node.fields(
        required=("name", *required),
        optional=("query", "file", "expect", "params", "timeout_seconds"),
    )
    name = fields["name"].text()
    if len(name) > CHECK_NAME_CHARACTERS_MAX:
        fields["name"].fail(f"the name has more than {CHECK_NAME_CHARACTERS_MAX} characters")
    expected = _expected(fields["expect"]) if "expect" in fields else Expected()
    params = plain_value(fields["params"]) if "params" in fields else {}
    if not isinstance(params, dict):
        fields["params"].fail("`params` must be a mapping")
    seconds = TIMEOUT_SECONDS
    if "timeout_seconds" in fields:
        given = plain_value(fields["timeout_seconds"])
        if isinstance(given, bool) or not isinstance(given, int | float) or given <= 0:
            fields["timeout_seconds"].fail("`timeout_seconds` must be a positive number")
        seconds = float(given)
    query = fields["query"].text() if "query" in fields else None
    file = path.parent / fields["file"].text() if "file" in fields else None
    return DeclaredCheck(name, query, params, expected, seconds, file)


def _expected(node: Node) -> Expected:
    if isinstance(node.value, str):
        try:
            return Expected.of(node.value)
        except ValueError as problem:
            node.fail(str(problem), hint="or give `min` and `max` numbers of rows")
    fields = node.fields(optional=("min", "max"))
    bounds = {name: plain_value(each) for name, each in fields.items()}
    for name, bound in bounds.items():
        if isinstance(bound, bool) or not isinstance(bound, int) or bound < 0:
            node.fail(f"`{name}` must be a number of rows")
    if not bounds:
        node.fail("`expect` needs `min` or `max`")
    return Expected(bounds.get("min", 0), bounds.get("max"))


# --- running checks -------------------------------------------------------------------------------

RunCheck = Callable[[DeclaredCheck, str], Result]
"""Runs the query of a check on a commit, within its limits."""


def check_outcome(
    check: DeclaredCheck, head: str, run: RunCheck
) -> tuple[CheckState, str, list[dict[str, Any]]]:
    """Run a check; returns its state, a message, and the first rows if it failed.

    Raises `QueryCancelled`: a cancelled check has no result.
    """
    try:
        found = run(check, head)
        first = _first_rows(found, 1) if check.expected.value else []
    except QueryCancelled:
        raise
    except OmnigraphError as error:
        return "failed", error.message[:TEXT_CHARACTERS_MAX], []
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        return "failed", f"the query of `{check.name}` cannot be read: {reason}", []
    state, text = check.judged(found.row_count, first[0] if first else None)
    if state == "passed":
        return state, text, []
    return state, text, kept_rows(_first_rows(found, CHECK_ROWS_MAX, safe_integers=True))


def _first_rows(found: Result, most: int, *, safe_integers: bool = False) -> list[dict[str, Any]]:
    shown = Result(
        found.to_arrow().slice(0, most),
        query_name=found.query_name,
        target=found.target,
        graph_commit_id=found.graph_commit_id,
    )
    rows: list[dict[str, Any]] = shown.to_dict(safe_integers=safe_integers)["rows"]
    return rows
