"""What is installed: the pins cover every package, and nothing that is not needed."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from docs.generators.licences import EXTRAS, installed_with

ROOT = Path(__file__).parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PINS = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
PINNED = dict(pin.split("==") for pin in PINS)

BUILD_TOOLS = {"editables", "setuptools", "wheel"}
"""What building takes, in an environment of its own; nothing that is installed asks for it."""
OPTIONAL = {"polars"}
"""What users may bring along; it is imported only when they do."""
ELSEWHERE = {"appnope"}
"""What only other platforms install."""


def declared() -> list[Requirement]:
    """Every requirement of the build, the plain install and all extras."""
    project = PYPROJECT["project"]
    lists = [
        PYPROJECT["build-system"]["requires"],
        project["dependencies"],
        *project["optional-dependencies"].values(),
    ]
    found = [Requirement(text) for texts in lists for text in texts]
    return [requirement for requirement in found if requirement.name != project["name"]]


def test_pins_are_plain_sorted_and_unique():
    assert [pin for pin in PINS if not re.fullmatch(r"[a-z0-9-]+==[a-z0-9.]+", pin)] == []
    names = [pin.partition("==")[0] for pin in PINS]
    assert names == sorted(set(names))


def test_every_declared_dependency_is_pinned_within_its_range():
    for requirement in declared():
        name = canonicalize_name(requirement.name)
        assert name in PINNED, f"{name} is not in constraints.txt"
        assert PINNED[name] in requirement.specifier, f"{name}=={PINNED[name]} is out of range"


def test_every_package_that_a_full_installation_brings_is_pinned_to_what_is_installed():
    brought = {name: metadata.version(name) for name in installed_with(declared())}
    assert {name: version for name, version in brought.items() if PINNED.get(name) != version} == {}


def test_every_package_the_code_imports_comes_with_it():
    """What only the tools bring is not there for those who run it."""
    project = PYPROJECT["project"]
    lists = [project["dependencies"], *(project["optional-dependencies"][name] for name in EXTRAS)]
    brought = installed_with(Requirement(text) for texts in lists for text in texts)
    providers = metadata.packages_distributions()
    foreign = imported() - sys.stdlib_module_names - {"omnigraph", "pyspark_omnigraph"}
    unknown = {
        module
        for module in foreign
        if not brought & {canonicalize_name(name) for name in providers.get(module, ())}
    }
    assert unknown == OPTIONAL


def imported() -> set[str]:
    """The first word of every import in the package, inside functions too."""
    found = set()
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found |= {name.name.partition(".")[0] for name in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module is not None:
                found.add(node.module.partition(".")[0])
    return found


def test_no_pin_is_left_over():
    assert PINNED.keys() - installed_with(declared()) == BUILD_TOOLS | ELSEWHERE
