"""The lines of one graph: one for each decision, and one for each access to its data.

The decision about a write is written before the write begins, and any decision is if the audit is
required: what was never recorded was never done. The line of an access follows when it has ended,
with what it read.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import orjson

from omnigraph.audit.log import AuditLog, AuditSettings
from omnigraph.effects.clock import monotonic_seconds
from omnigraph.errors import AuditUnavailable, OmnigraphError

_OPTIONS = orjson.OPT_APPEND_NEWLINE | orjson.OPT_NON_STR_KEYS
_READING = frozenset({"read", "export", "invoke_query", "graph_list", "maintain"})


@dataclass(frozen=True, slots=True)
class Asked:
    """Who asked, and what was decided."""

    actor: str | None
    request_id: str | None
    address: str | None
    action: str
    branch: str | None
    target_branch: str | None
    allowed: bool
    rule_id: str | None


@dataclass(slots=True)
class AccessLine:
    """One call of a verb, filled in while it runs."""

    verb: str
    started: float = field(default_factory=monotonic_seconds)
    asked: list[Asked] = field(default_factory=list)
    branch: str | None = None
    commit: str | None = None
    query: str | None = None
    digest: str | None = None
    types: set[str] = field(default_factory=set)
    rows: int | None = None
    params: Any = None
    held: bytes = b""
    """Lines of decisions that are written together with this one."""

    @property
    def is_write(self) -> bool:
        """Whether something other than reading was decided."""
        return any(each.action not in _READING for each in self.asked)


class Auditor:
    """Writes the lines of one graph. Safe to share between threads."""

    def __init__(self, settings: AuditSettings, graph: str) -> None:
        self.log = AuditLog.at(settings)
        self._graph = graph

    @property
    def keeps_params(self) -> bool:
        """Whether lines have the values of parameters."""
        return self.log.settings.params

    def decided(self, asked: Asked) -> None:
        """Record a decision; raises `AuditUnavailable` if it has to be kept and cannot be."""
        self.seen(asked)
        text = _text(
            {
                "time": _now(),
                "event": "decision",
                "graph": self._graph,
                **_who(asked),
                "action": asked.action,
                "branch": asked.branch,
                "target_branch": asked.target_branch,
                "decision": "allow" if asked.allowed else "deny",
                "rules": [] if asked.rule_id is None else [asked.rule_id],
            }
        )
        line = current()
        if line is None or self.log.settings.required or asked.action not in _READING:
            self.log.write(text)
        else:
            line.held += text  # a call of the system less, which another thread may delay

    def seen(self, asked: Asked) -> None:
        """Keep a decision, new or known in this request, for the line of the access under way."""
        line = current()
        if line is not None:
            line.asked.append(asked)

    def begin(self, verb: str) -> tuple[AccessLine, AccessLine | None]:
        """The line of an access that begins, and the one that it is a part of."""
        outer = current()
        _LINES.line = line = AccessLine(verb)
        return line, outer

    def end(
        self, line: AccessLine, outer: AccessLine | None, failure: BaseException | None
    ) -> None:
        """Record an access that has ended.

        Raises `AuditUnavailable` for a read that has to be kept and cannot be: its caller gets
        nothing. A write that is done is not undone.
        """
        _LINES.line = outer
        last = line.asked[-1] if line.asked else None
        branches = (each.branch for each in line.asked if each.branch)
        facts = {
            "time": _now(),
            "event": "access",
            "graph": self._graph,
            **({} if last is None else _who(last)),
            "verb": line.verb,
            "action": None if last is None else line.asked[0].action,
            "branch": line.branch or next(branches, None),
            "target_branch": next((e.target_branch for e in line.asked if e.target_branch), None),
            "commit": line.commit,
            "query": line.query,
            "query_digest": line.digest,
            "types": sorted(line.types),
            "rows": line.rows,
            "decision": "deny" if last is not None and not last.allowed else "allow",
            "rules": sorted({each.rule_id for each in line.asked if each.rule_id is not None}),
            "seconds": round(monotonic_seconds() - line.started, 6),
        }
        if line.params is not None:
            facts["params"] = line.params
        if failure is not None:
            facts["error"] = (
                failure.code if isinstance(failure, OmnigraphError) else type(failure).__name__
            )
        try:
            self.log.write(line.held + _text(facts))
        except AuditUnavailable:
            if failure is None and not line.is_write:
                raise


# --- the access under way -------------------------------------------------------------------------


class _Lines(threading.local):
    line: AccessLine | None = None


_LINES = _Lines()


def current() -> AccessLine | None:
    """The access that this thread is about, if one is audited."""
    return _LINES.line


def note(
    *,
    branch: str | None = None,
    commit: str | None = None,
    query: str | None = None,
    source: str | None = None,
    types: Iterable[str] = (),
    rows: int | None = None,
) -> None:
    """Add to the line of the access under way what it is about; nothing if none is audited."""
    line = current()
    if line is None:
        return
    line.types.update(types)
    line.branch = branch or line.branch
    line.commit = commit or line.commit
    line.query = query or line.query
    line.digest = line.digest if source is None else digest(source)
    line.rows = line.rows if rows is None else rows


@lru_cache(512)
def digest(source: str) -> str:
    """What stands for the text of a query.

    >>> digest("query q { match { $p: Person } return { $p } }")
    '335466ef138e24e4'
    """
    return hashlib.sha256(source.encode()).hexdigest()[:16]


def _text(facts: Mapping[str, Any]) -> bytes:
    known = {name: value for name, value in facts.items() if value is not None}
    return orjson.dumps(known, default=str, option=_OPTIONS)


def _who(asked: Asked) -> dict[str, Any]:
    return {
        "request_id": asked.request_id,
        "actor": asked.actor,
        "address": asked.address,
    }


_second = lru_cache(4)(lambda whole: time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(whole)))


def _now() -> str:
    moment = time.time()
    whole = int(moment)
    return f"{_second(whole)}.{int((moment - whole) * 1_000_000):06d}Z"
