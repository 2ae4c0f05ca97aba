"""Graphs that many tests start from: made once in a process, then copied file by file.

A graph without branches names no place outside itself, so that its copy is a graph. The files of
branches name the place they were made at. Lance stores that place as plain text behind its length,
so that a copy can name another place of the same length.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

PLACE_STEP = 64


def place_in(folder: Path, name: str = "graph") -> Path:
    """A path in ``folder``, of a length that few paths differ in: copies can share a template."""
    missing = -len(str(folder / f"{name}.omni")) % PLACE_STEP
    return folder / f"{name}{'-' * missing}.omni"


@dataclass(frozen=True)
class _Template:
    folder: TemporaryDirectory[str]
    root: Path
    naming: tuple[Path, ...]
    """The files that name its place: those of branches."""

    @classmethod
    def make(cls, make: Callable[[Path], object], length: int) -> _Template:
        folder = TemporaryDirectory(prefix="omnigraph-template-")
        root = Path(folder.name) / "graph.omni"
        root = root.with_name("-" * (length - len(str(root))) + root.name)
        make(root)
        naming = [
            path.relative_to(root)
            for path in root.rglob("*")
            if path.is_file() and bytes(root) in path.read_bytes()
        ]
        return cls(folder, root, tuple(naming))

    def fits(self, root: Path) -> bool:
        return not self.naming or len(bytes(root)) == len(bytes(self.root))

    def copy(self, root: Path) -> None:
        shutil.copytree(self.root, root, symlinks=True)
        if self.naming:
            # Other bytes than were written: their digests would say that they are damaged.
            shutil.rmtree(root / "__digests", ignore_errors=True)
        for path in self.naming:
            contents = (self.root / path).read_bytes()
            (root / path).write_bytes(contents.replace(bytes(self.root), bytes(root)))


_made: dict[Callable[[Path], object], list[_Template]] = {}


def copy_of(make: Callable[[Path], object], root: Path) -> None:
    """Put the graph that ``make`` makes, given a place, at ``root``.

    A graph with branches is made once for each length of a path: take ``root`` from `place_in`. At
    a path that is shorter than any template's it is made in place.
    """
    templates = _made.setdefault(make, [])
    fitting = next((each for each in templates if each.fits(root)), None)
    if fitting is None:
        fitting = _Template.make(make, len(bytes(root)))
        templates.append(fitting)
    if fitting.fits(root):
        fitting.copy(root)
    else:
        make(root)
