"""Graphs that many tests start from: made once in a process, kept in memory, written as copies.

A graph without branches names no place outside itself, so that its copy is a graph. The files of
branches name the place they were made at. Lance stores that place as plain text behind its length,
so that a copy can name another place of the same length.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

PLACE_STEP = 64


def place_in(folder: Path, name: str = "graph") -> Path:
    """A path in ``folder``, of a length that few paths differ in: copies can share a template."""
    missing = -len(str(folder / f"{name}.omni")) % PLACE_STEP
    return folder / f"{name}{'-' * missing}.omni"


@dataclass(frozen=True)
class _File:
    contents: bytes
    changed_ns: int

    @classmethod
    def read(cls, path: Path) -> _File:
        return cls(path.read_bytes(), path.stat().st_mtime_ns)


@dataclass(frozen=True)
class _Template:
    place: bytes
    """Where it was made."""
    folders: Sequence[str]
    files: Mapping[str, _File]
    names_place: bool
    """Some files do: those of branches."""

    @classmethod
    def make(cls, make: Callable[[Path], object], length: int) -> _Template:
        with TemporaryDirectory(prefix="omnigraph-template-") as folder:
            root = Path(folder) / "graph.omni"
            root = root.with_name("-" * (length - len(str(root))) + root.name)
            make(root)
            made = {str(path.relative_to(root)): path for path in sorted(root.rglob("*"))}
            files = {name: _File.read(path) for name, path in made.items() if path.is_file()}
            folders = [name for name in made if name not in files]
        names_place = any(bytes(root) in file.contents for file in files.values())
        if names_place:
            # Other bytes than were written: their digests would say that they are damaged.
            folders = [name for name in folders if not name.startswith("__digests")]
            files = {name: f for name, f in files.items() if not name.startswith("__digests")}
        return cls(bytes(root), folders, files, names_place)

    def fits(self, root: Path) -> bool:
        return not self.names_place or len(bytes(root)) == len(self.place)

    def copy(self, root: Path) -> None:
        place = bytes(root)
        root.mkdir(parents=True)
        for folder in self.folders:
            (root / folder).mkdir()
        for name, file in self.files.items():
            with (root / name).open("xb", buffering=0) as copy:
                copy.write(file.contents.replace(self.place, place))
                os.utime(copy.fileno(), ns=(file.changed_ns, file.changed_ns))


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
