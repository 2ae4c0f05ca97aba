"""Everything a directory holds, down to the last byte and the time of the last change."""

from __future__ import annotations

import hashlib
from pathlib import Path


def footprint(root: Path) -> dict[str, tuple[int, int, str]]:
    """Mode, change time and content hash of every file and directory below ``root``."""
    found = {}
    for path in [root, *sorted(root.rglob("*"))]:
        status = path.lstat()
        content = "" if path.is_dir() else hashlib.sha256(path.read_bytes()).hexdigest()
        found[path.relative_to(root).as_posix()] = (status.st_mode, status.st_mtime_ns, content)
    return found


def contents(root: Path) -> dict[str, tuple[int, int, str]]:
    """The same without the directory itself, which the probe of a store touches."""
    return {name: seen for name, seen in footprint(root).items() if name != "."}
