"""What Java prints when it fails, and the line of it that says why."""

from __future__ import annotations

import re

_LINES_MAX = 5
_CAUSE = "Caused by: "
_FRAME = re.compile(r"\s*(at |\.\.\. \d+ )")
_FAILURE = re.compile(r"(?:[a-z]\w*\.)+[A-Z][\w$]*(?:Exception|Error)(?:: *(?P<says>.+))?$")
_STOPPED = "stopped SparkContext"
_GIVEN_UP = re.compile(r"Application has been killed\. Reason: (.+)")


def reason_of(printed: str, log: str = "") -> str:
    """What the innermost failure says, or the last lines if there is none; never a stack frame.

    ``log`` is that of the JVM: why a cluster did not take an application in is only there.
    """
    given_up = _GIVEN_UP.findall(log) if _STOPPED in printed else []
    if given_up:
        return str(given_up[-1])
    own = [line for line in printed.splitlines() if line.strip() and not _FRAME.match(line)]
    causes = [line for line in own if line.startswith(_CAUSE)]
    for line in reversed(causes or own):
        failure = _FAILURE.search(line)
        if failure is not None:
            return (failure["says"] or failure[0]).strip()
    return " ".join(line.strip() for line in own[-_LINES_MAX:])
