"""The audit lines of one graph: one per decision, and one per access to its data.

The decision about a write is written before the write begins; if the audit is required, so is every
decision. Invariant: an action without a line was not done. The line of an access is written when it
has ended, with its result. Equal parts of lines are cached, because requests are similar.
"""

from __future__ import annotations

import hashlib
import threading
import time
from dataclasses import field
from functools import lru_cache, partial
from typing import Any, NamedTuple

import orjson

from omnigraph.audit.log import AuditLog, AuditSettings
from omnigraph.effects.clock import monotonic_seconds
from omnigraph.errors import AuditUnavailable, OmnigraphError
from omnigraph.model.records import dataclass

_READING = frozenset({"read", "export", "invoke_query", "graph_list", "maintain"})


class Asked(NamedTuple):
    """A decision and its actor."""

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
    """The line of one call of a verb, filled in while it runs."""

    verb: str
    started: float = field(default_factory=monotonic_seconds)
    asked: list[Asked] = field(default_factory=list)
    branch: str | None = None
    commit: str | None = None
    query: str | None = None
    digest: str | None = None
    types: frozenset[str] = frozenset()
    rows: int | None = None
    params: Any = None
    held: tuple[tuple[float, Asked], ...] = ()
    """Decisions to write together with this line, with their times."""
    failure: str | None = None
    seconds: float = 0.0

    @property
    def is_write(self) -> bool:
        """Whether any decision was about a write."""
        return any(each.action not in _READING for each in self.asked)


class Auditor:
    """Writes the lines of one graph. Thread-safe."""

    def __init__(self, settings: AuditSettings, graph: str) -> None:
        from omnigraph.audit import describing  # imported here, because it imports this module

        self.log = AuditLog.at(settings)
        self.describing = describing
        """The module that describes accesses; cached."""
        self._graph = graph

    @property
    def keeps_params(self) -> bool:
        """Whether lines contain the values of parameters."""
        return self.log.settings.params

    def decided(self, asked: Asked) -> None:
        """Record a decision; raises `AuditUnavailable` if it is required and fails."""
        moment, line = time.time(), _LINES.line
        if line is not None:
            line.asked.append(asked)
        if self.log.settings.required or asked.action not in _READING:
            self.log.write(_decision_line(self._graph, moment, asked))
        elif line is None:
            self.log.add(partial(_decision_line, self._graph, moment, asked))
        else:
            line.held += ((moment, asked),)

    def seen(self, asked: Asked) -> None:
        """Add a decision, new or reused in this request, to the line of the current access."""
        line = current()
        if line is not None:
            line.asked.append(asked)

    def begin(self, verb: str) -> tuple[AccessLine, AccessLine | None]:
        """Begin the line of an access; returns it and the enclosing one."""
        outer = current()
        _LINES.line = line = AccessLine(verb)
        return line, outer

    def end(
        self, line: AccessLine, outer: AccessLine | None, failure: BaseException | None
    ) -> None:
        """Record a finished access.

        Raises `AuditUnavailable` if the line is required and cannot be written, so that the caller
        of a read gets no data. A finished write is not undone.
        """
        _LINES.line = outer
        moment, line.seconds = time.time(), monotonic_seconds() - line.started
        if failure is not None:
            line.failure = type(failure).__name__
            if isinstance(failure, OmnigraphError):
                line.failure = failure.code
        lines = partial(_access_lines, self._graph, moment, line)
        if line.params is not None:
            text = lines()  # rendered now, because the caller may change the values
            lines = partial(bytes, text)
        try:
            self.log.add(lines)
        except AuditUnavailable:
            if failure is None and not line.is_write:
                raise


# --- lines ----------------------------------------------------------------------------------------


def _decision_line(graph: str, moment: float, asked: Asked, request: bytes | None = None) -> bytes:
    head, tail = _decision_parts(graph, asked[0], asked[2:])
    told = _request(asked) if request is None else request
    return b"%b%b%b%b" % (_at(moment), head, told, tail)


@lru_cache(1024)
def _decision_parts(
    graph: str,
    actor: str | None,
    more: tuple[str | None, str, str | None, str | None, bool, str | None],
) -> tuple[bytes, bytes]:
    """The parts before and after the id of the request."""
    address, action, branch, target_branch, allowed, rule_id = more
    facts = {
        "actor": actor,
        "address": address,
        "action": action,
        "branch": branch,
        "target_branch": target_branch,
        "decision": "allow" if allowed else "deny",
        "rules": [] if rule_id is None else [rule_id],
    }
    return _members({"event": "decision", "graph": graph}), _members(facts) + b"}\n"


def _access_lines(graph: str, moment: float, line: AccessLine) -> bytes:
    """The lines of held decisions, then that of the access."""
    asked = line.asked
    last = asked[-1] if asked else None
    if len(asked) == 1 and last is not None:
        branch, target = last.branch, last.target_branch
        rules: tuple[str | None, ...] = (last.rule_id,)
    else:
        branch = next((each.branch for each in asked if each.branch), None)
        target = next((each.target_branch for each in asked if each.target_branch), None)
        rules = tuple(sorted({each.rule_id for each in asked if each.rule_id is not None}))
    head, middle, tail = _access_parts(
        (
            graph,
            None if last is None else (last.actor, last.address),
            line.verb,
            asked[0].action if asked else None,
            line.branch or branch,
            target,
            line.commit,
            line.query,
            line.digest,
            line.types,
            last is None or last.allowed,
            rules,
        )
    )
    request = b"" if last is None else _request(last)
    rows = b"" if line.rows is None else b',"rows":%d' % line.rows
    end = b"}\n"
    if line.params is not None or line.failure is not None:
        more = {"params": line.params, "error": line.failure}
        end = _members(more) + end
    held = [
        _decision_line(graph, when, each, request if each is last else None)
        for when, each in line.held
    ]
    told = (_at(moment), head, request, middle, rows, tail, b',"seconds":%.6f' % line.seconds, end)
    return b"".join((*held, *told))


_AlikeAccesses = tuple[
    str,
    tuple[str | None, str | None] | None,
    str,
    str | None,
    str | None,
    str | None,
    str | None,
    str | None,
    str | None,
    frozenset[str],
    bool,
    tuple[str | None, ...],
]


@lru_cache(1024)
def _access_parts(alike: _AlikeAccesses) -> tuple[bytes, bytes, bytes]:
    """The parts before the id of the request, before the number of rows, and after it."""
    graph, who, verb, action, branch, target_branch = alike[:6]
    commit, query, digest, types, allowed, rules = alike[6:]
    actor, address = (None, None) if who is None else who
    middle = {
        "actor": actor,
        "address": address,
        "verb": verb,
        "action": action,
        "branch": branch,
        "target_branch": target_branch,
        "commit": commit,
        "query": query,
        "query_digest": digest,
        "types": sorted(types),
    }
    tail = {
        "decision": "allow" if allowed else "deny",
        "rules": [each for each in rules if each is not None],
    }
    return _members({"event": "access", "graph": graph}), _members(middle), _members(tail)


def _members(facts: dict[str, Any]) -> bytes:
    """The members of an object that follow others, without None values."""
    known = {name: value for name, value in facts.items() if value is not None}
    return b"," + orjson.dumps(known, default=str, option=orjson.OPT_NON_STR_KEYS)[1:-1]


def _request(asked: Asked) -> bytes:
    given = asked.request_id
    return b"" if given is None else b',"request_id":' + orjson.dumps(given)


def _at(moment: float) -> bytes:
    whole = int(moment)
    return b'{"time":"%s.%06dZ"' % (_second(whole), int((moment - whole) * 1_000_000))


_second = lru_cache(4)(
    lambda whole: time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(whole)).encode()
)


# --- the current access ---------------------------------------------------------------------------


class _Lines(threading.local):
    line: AccessLine | None = None


_LINES = _Lines()


def current() -> AccessLine | None:
    """The access of this thread, if it is audited."""
    return _LINES.line


@lru_cache(512)
def digest(source: str) -> str:
    """A digest of the text of a query.

    >>> digest("query q { match { $p: Person } return { $p } }")
    '335466ef138e24e4'
    """
    return hashlib.sha256(source.encode()).hexdigest()[:16]
