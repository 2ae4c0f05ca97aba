"""Graphs that many tests start from: made once in a process, then copied file by file.

A graph without branches names no place outside itself, so that its copy is a graph. The files of
branches name the place they were made at: branches are created in the copy.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory


@cache
def _made(make: Callable[[Path], object]) -> tuple[TemporaryDirectory[str], Path]:
    folder = TemporaryDirectory(prefix="omnigraph-template-")
    root = Path(folder.name) / "graph.omni"
    make(root)
    return folder, root


def copy_of(make: Callable[[Path], object], root: Path) -> None:
    """Put the graph that ``make`` makes, given a place, at ``root``."""
    _, template = _made(make)
    shutil.copytree(template, root, symlinks=True)
