"""Under what circumstances something was measured: when, of which code, on what, and with what.

A number without its machine means nothing, so a record always names it; nothing in it identifies a
person or a network.
"""

from __future__ import annotations

import os
import platform
import subprocess
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
"""The checkout that is measured."""

PACKAGES = {
    "omnigraph": "omnigraph",
    "lance": "pylance",
    "pyarrow": "pyarrow",
    "spark": "pyspark",
    "duckdb": "duckdb",
    "kuzu": "kuzu",
}
"""What figures depend on, and the distribution it comes in."""


@dataclass(frozen=True, slots=True)
class Circumstances:
    """Everything around a run that its figures depend on."""

    date: str
    commit: str | None
    """The code that was measured; a ``+`` says that it was changed since. ``None`` without git."""
    seed: int | None
    """Of the generated data; ``None`` where nothing is left to chance."""
    seconds: float
    """How long the whole run took."""
    machine: dict[str, Any]
    versions: dict[str, str | None]

    @property
    def was_busy(self) -> bool:
        """Whether others wanted the machine when the run began: figures are then too high."""
        load: float | None = self.machine["load_before"]
        return load is not None and load > 1

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return asdict(self)


def circumstances(seed: int | None, seconds: float) -> Circumstances:
    """Those of a run that just ended."""
    return Circumstances(
        date=datetime.now(UTC).date().isoformat(),
        commit=_commit(),
        seed=seed,
        seconds=round(seconds, 1),
        machine={
            "processor": _processor(),
            "cores": os.cpu_count(),
            "memory_gib": _memory_gib(),
            "os": _system(),
            "architecture": platform.machine(),
            "load_before": LOAD_BEFORE,
        },
        versions={"python": platform.python_version(), **_packages()},
    )


def _packages() -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for name, distribution in PACKAGES.items():
        try:
            found[name] = version(distribution)
        except PackageNotFoundError:
            found[name] = None
    return found


def _commit() -> str | None:
    commit = _git("rev-parse", "--short=12", "HEAD")
    if commit and _git("status", "--porcelain", "--", "src", "bench/*.py"):
        return f"{commit}+"
    return commit


def _git(*arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text(encoding="utf-8", errors="replace").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    return platform.processor() or "unknown"


def _system() -> str:
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        return platform.platform(terse=True)


def _memory_gib() -> float | None:
    try:
        size = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return None
    return round(size / 2**30, 1)


def _load_average() -> float | None:
    try:
        return round(os.getloadavg()[0], 2)
    except (OSError, AttributeError):
        return None


LOAD_BEFORE = _load_average()
"""How many processes wanted a core when this one started; later it would be counted itself."""
