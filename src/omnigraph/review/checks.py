"""Checks of a change request: stored queries, and how many rows each may return.

`checks.yaml` lies beside the `.gq` files of the queries:

    checks:
      - name: no_orphans
        query: orphans
        expect: empty
      - name: enough_people
        query: people
        params: { country: NO }
        expect: { min: 10, max: 5000 }
        timeout_seconds: 20
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from omnigraph.errors import InputError
from omnigraph.model.reviews import CHECK_NAME_CHARACTERS_MAX, CheckState
from omnigraph.strict_yaml import Node, Plain, read_document

FILE_NAME = "checks.yaml"
TIMEOUT_SECONDS = 60.0
CHECKS_MAX = 200


@dataclass(frozen=True, slots=True)
class Check:
    """A stored query and the number of rows that it must return."""

    name: str
    query: str
    params: Mapping[str, Any] = field(default_factory=dict)
    rows_min: int = 0
    rows_max: int | None = 0
    """None for any number."""
    timeout_seconds: float = TIMEOUT_SECONDS

    def judged(self, rows: int) -> tuple[CheckState, str]:
        """Whether a number of rows is what was expected, and a sentence about it."""
        found = f"`{self.query}` returned {rows} row{'' if rows == 1 else 's'}"
        is_fine = rows >= self.rows_min and (self.rows_max is None or rows <= self.rows_max)
        return ("passed", found) if is_fine else ("failed", f"{found}, expected {self.expected}")

    @property
    def expected(self) -> str:
        """The number of rows that is expected, in words."""
        if self.rows_max is None:
            return f"at least {self.rows_min}"
        if self.rows_min == self.rows_max:
            return "none" if self.rows_max == 0 else f"{self.rows_max}"
        return f"{self.rows_min} to {self.rows_max}"


def checks_files(paths: Iterable[Path]) -> list[Path]:
    """The checks files among some paths, or beside them: those of directories and of queries."""
    found: dict[Path, None] = {}
    for path in paths:
        if path.suffix in (".yaml", ".yml"):
            found[path] = None
        else:
            beside = (path if path.is_dir() else path.parent) / FILE_NAME
            if beside.is_file():
                found[beside] = None
    return list(found)


def stored_checks(paths: Iterable[Path]) -> tuple[Check, ...]:
    """The checks that lie beside stored queries; raises `InputError` for two of one name."""
    found: dict[str, Check] = {}
    for file in checks_files(paths):
        for check in load_checks(file):
            if check.name in found:
                raise InputError(f"two checks are called '{check.name}'", hint="rename one of them")
            found[check.name] = check
    return tuple(found.values())


def load_checks(path: Path) -> tuple[Check, ...]:
    """The checks of a file; raises `InputError` with the place of a mistake, and `OSError`."""
    fields = read_document(path, InputError).fields(required=("checks",), optional=("version",))
    checks: dict[str, Check] = {}
    nodes = fields["checks"].items()
    if len(nodes) > CHECKS_MAX:
        fields["checks"].fail(f"there are {len(nodes)} checks, at most {CHECKS_MAX} are run")
    for node in nodes:
        check = _check(node)
        if check.name in checks:
            node.fail(f"two checks are called `{check.name}`")
        checks[check.name] = check
    return tuple(checks.values())


def _check(node: Node) -> Check:
    fields = node.fields(
        required=("name", "query"), optional=("expect", "params", "timeout_seconds")
    )
    name = fields["name"].text()
    if len(name) > CHECK_NAME_CHARACTERS_MAX:
        fields["name"].fail(f"the name has more than {CHECK_NAME_CHARACTERS_MAX} characters")
    rows_min, rows_max = _expected(fields["expect"]) if "expect" in fields else (0, 0)
    params = _plain(fields["params"]) if "params" in fields else {}
    if not isinstance(params, dict):
        fields["params"].fail("`params` must be a mapping")
    seconds = TIMEOUT_SECONDS
    if "timeout_seconds" in fields:
        given = _plain(fields["timeout_seconds"])
        if isinstance(given, bool) or not isinstance(given, int | float) or given <= 0:
            fields["timeout_seconds"].fail("`timeout_seconds` must be a positive number")
        seconds = float(given)
    return Check(name, fields["query"].text(), params, rows_min, rows_max, seconds)


def _expected(node: Node) -> tuple[int, int | None]:
    if isinstance(node.value, str):
        if node.value != "empty":
            node.fail("`expect` must be `empty`, or `min` and `max` numbers of rows")
        return 0, 0
    bounds = {name: _plain(each) for name, each in node.fields(optional=("min", "max")).items()}
    for name, bound in bounds.items():
        if isinstance(bound, bool) or not isinstance(bound, int) or bound < 0:
            node.fail(f"`{name}` must be a number of rows")
    if not bounds:
        node.fail("`expect` needs `min` or `max`")
    return bounds.get("min", 0), bounds.get("max")


def _plain(node: Node) -> Any:
    """A value as JSON has it."""
    match node.value:
        case str() as text:
            return text
        case list() as items:
            return [_plain(item) for item in items]
        case dict() as fields:
            return {key: _plain(value) for key, value in fields.items()}
        case Plain(spelling, kind):
            return _scalar(spelling, kind)


def _scalar(spelling: str, kind: str) -> Any:
    match kind:
        case "nothing":
            return None
        case "a boolean":
            return spelling == "true"
        case "an integer":
            return int(spelling, 0) if spelling[:2] in ("0x", "0o") else int(spelling)
    return float(spelling.replace(".inf", "inf").replace(".nan", "nan"))
