"""Findings: what is not as it should be in a graph, and the one command that mends it."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import Any, Literal

Severity = Literal["problem", "advice"]
"""A problem keeps something from working. Advice is about what could be faster or smaller."""

FindingCode = Literal[
    "damaged",
    "drift",
    "fragments",
    "index_missing",
    "index_stale",
    "java_missing",
    "lease_abandoned",
    "orphan_ref",
    "root_moved",
    "unsettled",
    "versions",
]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing to attend to."""

    code: FindingCode
    severity: Severity
    subject: str
    """What it is about: a type, a branch, an operation, the graph."""
    message: str
    command: str
    """What to run against it."""

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {name: getattr(self, name) for name in Finding.__slots__}


def command_on(uri: str, verb: str, *flags: str, branch: str = "main") -> str:
    """A command on a graph as it can be pasted into a shell.

    >>> command_on("team data.omni", "cleanup", "--keep", "10", branch="review")
    "omnigraph cleanup 'team data.omni' --branch review --keep 10"
    """
    of_branch = () if branch == "main" else ("--branch", branch)
    return shlex.join(("omnigraph", verb, uri, *of_branch, *flags))
