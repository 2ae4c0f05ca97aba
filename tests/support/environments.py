"""Environments of Python, made without a network of wheels and of packages installed here."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterable
from contextlib import suppress
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).parents[2]
PURELIB = "import sysconfig; print(sysconfig.get_path('purelib'))"


def build(source: Path, into: Path, *targets: str) -> list[Path]:
    """Build from a directory, without a network and without an environment to build in."""
    wanted = [word for target in targets for word in ("--target", target)]
    run(sys.executable, "-m", "hatchling", "build", "--directory", into, *wanted, cwd=source)
    return sorted(into.iterdir())


def run(*command: object, cwd: Path) -> str:
    """What a program says that knows nothing of the one that starts it."""
    settings = {"PATH": os.defpath, "HOME": str(cwd), "LANG": "C.UTF-8"}
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env=settings,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == "" or command[1:3] == ("-m", "hatchling"), done.stderr
    return done.stdout


def new_environment(place: Path) -> Path:
    """The Python of a new environment without packages, not even pip."""
    venv.EnvBuilder(symlinks=True, with_pip=False).create(place)
    return place / "bin" / "python"


def install(
    python: Path, packages: Iterable[str], *wheels: Path, with_copies: bool = False
) -> None:
    """Put packages that are installed here into an environment, and wheels; as links or copies."""
    place = Path(run(python, "-c", PURELIB, cwd=python.parent).strip())
    for name in packages:
        for found in entries_of(name):
            with suppress(FileExistsError):
                if not with_copies:
                    (place / found.name).symlink_to(found)
                elif found.is_dir():
                    shutil.copytree(found, place / found.name)
                else:
                    shutil.copy(found, place)
    for wheel in wheels:
        asked = ("install", "--quiet", "--no-deps", "--no-index", wheel)
        run(sys.executable, "-m", "pip", "--python", python, *asked, cwd=python.parent)


def entries_of(name: str) -> set[Path]:
    """What a package has put into the directory of packages: modules, and what is known of it."""
    files = metadata.files(name)
    assert files, f"{name} does not say what belongs to it"
    tops = {file.parts[0] for file in files} - {"..", "__pycache__"}
    return {Path(str(files[0].locate())).parents[len(files[0].parts) - 1] / top for top in tops}
