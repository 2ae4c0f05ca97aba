"""The case files: YAML in, values out. `README.md` beside this file describes the format."""

from __future__ import annotations

import datetime as dt
import hashlib
import math
import os
import pickle
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from omnigraph.model.values import parse_datetime

DIRECTORY = Path(__file__).parent

_FILE_KEYS = {"about", "schema", "seed", "before", "cases"}
_CASE_KEYS = {
    "name",
    "proves",
    "ids",
    "query",
    "select",
    "parameters",
    "now",
    "branch",
    "snapshot",
    "environment",
    "only",
    "columns",
    "rows",
    "count",
    "types",
    "approximate",
    "error",
}
_ERROR_KEYS = {"code", "diagnostic", "message"}
_STEP_KEYS = {"load", "mutate", "parameters", "branch", "from", "on", "index", "remember"}


@dataclass(frozen=True)
class Setup:
    """How to make the graph that the cases of a file read."""

    schema: str
    seed: tuple[dict[str, Any], ...]
    before: tuple[dict[str, Any], ...]


@dataclass(frozen=True)
class ExpectedError:
    """What a query is refused with; what is None may be anything."""

    code: str
    diagnostic: str | None
    message: str | None


@dataclass(frozen=True)
class ExpectedRows:
    """What a query answers."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    count: int | None
    """How many of the rows come back, where the language leaves open which."""
    types: dict[str, str]
    approximate: frozenset[str]


@dataclass(frozen=True)
class Case:
    """One query and what must come of it."""

    file: str
    name: str
    proves: str
    ids: tuple[str, ...]
    setup: Setup
    query: str
    select: str | None
    parameters: Any
    now: dt.datetime | None
    branch: str | None
    snapshot: str | None
    environment: dict[str, str] | None
    only: str | None
    expected: ExpectedRows | ExpectedError

    def __str__(self) -> str:
        return f"{self.file}: {self.name}"


@cache
def all_cases() -> tuple[Case, ...]:
    """Every case of every file, file by file."""
    return tuple(case for path in sorted(DIRECTORY.glob("*.yaml")) for case in read_cases(path))


def _read(path: Path) -> Any:
    """What a file contains, kept beside it: reading all of them takes seconds."""
    text = path.read_bytes()
    name = f"{path.stem}-{hashlib.sha256(text).hexdigest()[:16]}.pickle"
    kept = path.parent / "__pycache__" / name
    if kept.exists():
        return pickle.loads(kept.read_bytes())
    # The pure reader refuses a key that is written twice.
    document = YAML(typ="safe", pure=True).load(text)
    with suppress(OSError):  # a checkout may be read-only
        kept.parent.mkdir(exist_ok=True)
        for older in kept.parent.glob(f"{path.stem}-*.pickle"):
            older.unlink(missing_ok=True)
        made = kept.with_suffix(f".{os.getpid()}")
        made.write_bytes(pickle.dumps(document))
        made.replace(kept)
    return document


def read_cases(path: Path) -> list[Case]:
    """The cases of one file; a mistake in it is an error that names it."""
    document = _read(path)
    _only_keys(document, _FILE_KEYS, path.name)
    for step in document.get("before", ()):
        _only_keys(step, _STEP_KEYS, path.name)
    setup = Setup(
        document["schema"], tuple(document.get("seed") or ()), tuple(document.get("before", ()))
    )
    cases = [_case(entry, path.stem, setup) for entry in document["cases"]]
    names = [case.name for case in cases]
    assert len(set(names)) == len(names), f"{path.name}: a name is used twice"
    return cases


def _case(entry: dict[str, Any], file: str, setup: Setup) -> Case:
    where = f"{file}: {entry.get('name')}"
    _only_keys(entry, _CASE_KEYS, where)
    return Case(
        file,
        entry["name"],
        entry["proves"],
        tuple(entry["ids"]),
        setup,
        entry["query"],
        entry.get("select"),
        entry.get("parameters"),
        parse_datetime(entry["now"]) if "now" in entry else None,
        entry.get("branch"),
        entry.get("snapshot"),
        entry.get("environment"),
        entry.get("only"),
        _expected(entry, where),
    )


def _expected(entry: dict[str, Any], where: str) -> ExpectedRows | ExpectedError:
    if "error" in entry:
        error = entry["error"]
        _only_keys(error, _ERROR_KEYS, where)
        assert not entry.keys() & {"columns", "rows"}, f"{where}: rows and an error"
        return ExpectedError(error["code"], error.get("diagnostic"), error.get("message"))
    columns = tuple(entry["columns"])
    rows = tuple(tuple(row) for row in entry["rows"])
    for row in rows:
        assert len(row) == len(columns), f"{where}: {row} has not {len(columns)} values"
        _require_json(row, where)
    return ExpectedRows(
        columns,
        rows,
        entry.get("count"),
        entry.get("types", {}),
        frozenset(entry.get("approximate", ())),
    )


def _only_keys(entry: dict[str, Any], known: set[str], where: str) -> None:
    unknown = entry.keys() - known
    assert not unknown, f"{where}: unknown keys {sorted(unknown)}"


def _require_json(value: Any, where: str) -> None:
    """Expected values are those of JSON; YAML would also read dates, for instance."""
    match value:
        case list() | tuple():
            for item in value:
                _require_json(item, where)
        case dict():
            _require_json(list(value.values()), where)
        case float():
            assert math.isfinite(value), f"{where}: write {value} as text"
        case _:
            known = value is None or isinstance(value, bool | int | str)
            assert known, f"{where}: {value!r} is no JSON value; put it in quotes"
