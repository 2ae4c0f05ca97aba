"""On which terms Omnigraph is installed: nothing comes in whose licence nobody has looked at."""

from __future__ import annotations

import re

from docs.generators.licences import (
    EXTRAS,
    LOOKED_AT,
    PYPROJECT,
    declared,
    installed_with,
    licence_of,
    licences_page,
)

ALLOWED = {
    *("0BSD", "Apache-2.0", "BSD", "BSD-2-Clause", "BSD-3-Clause", "CC0-1.0", "ISC", "MIT"),
    *("MIT-0", "PSF-2.0", "Zlib"),
    "MPL-2.0",  # asks for changes to its own files only
}


def runtime() -> set[str]:
    """The packages of an installation with every extra that users have."""
    wanted = [*declared(), *(each for extra in EXTRAS for each in declared(extra))]
    return installed_with(wanted)


def terms(licence: str) -> set[str]:
    """The licences of an expression, whichever way they are joined."""
    return set(re.findall(r"[\w.-]+", licence)) - {"AND", "OR"}


def test_every_runtime_dependency_has_a_licence_we_can_live_with():
    found = {name: licence_of(name) for name in runtime()}
    strange = {name: licence for name, licence in found.items() if terms(licence) - ALLOWED}
    assert strange.keys() == LOOKED_AT.keys(), strange


def test_the_extras_of_the_page_are_those_that_all_brings():
    (everything,) = declared("all")
    assert everything.extras == set(EXTRAS)


def test_the_page_lists_every_runtime_dependency_and_is_current():
    page = PYPROJECT.with_name("docs") / "reference" / "licences.md"
    assert page.read_text(encoding="utf-8") == licences_page(), "run `make docs`"
    listed = set(re.findall(r"^\| ([a-z0-9-]+) \| \d", licences_page(), re.MULTILINE))
    assert listed == runtime()
