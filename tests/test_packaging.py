"""What is installed: the pins cover every declared dependency, and the versions agree."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import omnigraph

ROOT = Path(__file__).parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PINS = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()


def declared() -> list[Requirement]:
    """Every requirement of the build, the plain install and all extras."""
    project = PYPROJECT["project"]
    lists = [
        PYPROJECT["build-system"]["requires"],
        project["dependencies"],
        *project["optional-dependencies"].values(),
    ]
    return [Requirement(text) for texts in lists for text in texts]


def test_pins_are_plain_sorted_and_unique():
    assert [pin for pin in PINS if not re.fullmatch(r"[a-z0-9-]+==[a-z0-9.]+", pin)] == []
    names = [pin.partition("==")[0] for pin in PINS]
    assert names == sorted(set(names))


def test_every_declared_dependency_is_pinned_within_its_range():
    pinned = dict(pin.split("==") for pin in PINS)
    for requirement in declared():
        name = canonicalize_name(requirement.name)
        if name != "omnigraph":
            assert name in pinned, f"{name} is not in constraints.txt"
            assert pinned[name] in requirement.specifier, f"{name}=={pinned[name]} is out of range"


def test_package_version_is_the_declared_one():
    assert omnigraph.__version__ == PYPROJECT["project"]["version"]


def test_package_ships_its_types():
    assert (Path(omnigraph.__file__).parent / "py.typed").is_file()
