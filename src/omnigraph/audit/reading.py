"""Reading audit files: filtering lines, and converting them to graph records."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import orjson

from omnigraph.audit.log import flush_all
from omnigraph.errors import InputError
from omnigraph.model.records import dataclass

SCHEMA = Path(__file__).with_name("audit.pg")
"""The schema of a graph into which audit lines are loaded."""

_AGO = re.compile(r"(?P<count>[0-9]{1,6})(?P<unit>[smhdw])", re.ASCII)
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One line, with its position."""

    file: Path
    line: int
    facts: Mapping[str, Any]

    @property
    def id(self) -> str:
        """A stable id, from the content of the line, so that loading it again has no effect."""
        content = orjson.dumps(dict(self.facts), option=orjson.OPT_SORT_KEYS)
        return hashlib.sha256(content).hexdigest()[:32]

    @property
    def types(self) -> list[str]:
        """The types that the line names."""
        return list(self.facts.get("types", ()))


@dataclass(frozen=True, slots=True)
class AuditFilter:
    """Filters lines; all given conditions must hold."""

    actor: str | None = None
    type: str | None = None
    since: str | None = None
    """A timestamp in the format of lines; compared as text."""

    @classmethod
    def of(cls, actor: str | None, type: str | None, since: str | None) -> AuditFilter:
        """``since`` is a time as `2026-11-18` or `2026-11-18T20:00`, or an age as `24h`, `7d`."""
        return cls(actor, type, None if since is None else _moment(since))

    def fits(self, facts: Mapping[str, Any]) -> bool:
        """Whether a line passes."""
        if self.actor is not None and facts.get("actor") != self.actor:
            return False
        if self.type is not None and self.type not in facts.get("types", ()):
            return False
        return self.since is None or str(facts.get("time", "")) >= self.since


def read_entries(files: Iterable[Path], wanted: AuditFilter) -> Iterator[AuditEntry]:
    """The lines of files that pass a filter, in order, including waiting ones of this process.

    The last line of a file may be incomplete, if a process ended while writing it. Raises
    `InputError` for an unreadable file, and for any other invalid line.
    """
    flush_all()
    for file in files:
        try:
            with file.open("rb") as lines:
                yield from _entries(file, lines, wanted)
        except OSError as problem:
            reason = (problem.strerror or str(problem)).lower()
            raise InputError(f"the audit file {file} cannot be read: {reason}") from None


def _entries(file: Path, lines: Iterable[bytes], wanted: AuditFilter) -> Iterator[AuditEntry]:
    for number, text in enumerate(lines, 1):
        try:
            facts = orjson.loads(text)
            if not isinstance(facts, dict) or "event" not in facts:
                raise ValueError
        except ValueError:
            if not text.endswith(b"\n"):
                return
            raise InputError(
                f"line {number} of {file} is no line of an audit",
                hint="name files that `--audit` (audit=…) has written",
            ) from None
        if wanted.fits(facts):
            yield AuditEntry(file, number, facts)


def graph_records(entries: Iterable[AuditEntry]) -> Iterator[bytes]:
    """Lines as graph records for the schema `SCHEMA`, in blocks of whole lines."""
    actors: set[str] = set()
    types: set[str] = set()
    for entry in entries:
        facts, id = entry.facts, entry.id
        records: list[dict[str, Any]] = []
        actor = facts.get("actor")
        if actor is not None and actor not in actors:
            actors.add(actor)
            records.append({"type": "Actor", "data": {"name": actor}})
        for name in entry.types:
            if name not in types:
                types.add(name)
                records.append({"type": "TouchedType", "data": {"name": name}})
        data = {_PROPERTIES.get(name, name): facts[name] for name in _KEPT if name in facts}
        data["rules"] = list(facts.get("rules", ()))
        records.append({"type": "Access", "data": {"entry": id, **data}})
        if actor is not None:
            records.append({"edge": "DoneBy", "from": id, "to": actor, "data": {}})
        records += ({"edge": "Touched", "from": id, "to": name, "data": {}} for name in entry.types)
        yield b"".join(orjson.dumps(each, option=orjson.OPT_APPEND_NEWLINE) for each in records)


_KEPT = (
    *("time", "event", "request_id", "graph", "verb", "action", "branch", "target_branch"),
    *("commit", "query", "query_digest", "rows", "decision", "seconds", "address", "error"),
)
_PROPERTIES = {"time": "at", "commit": "commit_id", "action": "action_name", "query": "query_name"}
"""Members whose names are keywords of the query language, with other names."""


def _moment(text: str) -> str:
    ago = _AGO.fullmatch(text.strip())
    if ago is not None:
        found = datetime.now(UTC) - timedelta(**{_UNITS[ago["unit"]]: int(ago["count"])})
    else:
        try:
            found = datetime.fromisoformat(text.strip())
        except ValueError:
            raise InputError(
                f"`{text}` is no moment",
                hint="write it as 2026-11-18, 2026-11-18T20:00, or as an age: 24h, 7d",
            ) from None
        found = found.replace(tzinfo=found.tzinfo or UTC).astimezone(UTC)
    return found.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
