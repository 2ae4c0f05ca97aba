"""The catalogue of errors, from the classes and their docstrings."""

from __future__ import annotations

from collections.abc import Iterator

from docs.generators.text import first_paragraph
from omnigraph.errors import OmnigraphError

INTRODUCTION = """\
# Errors

<!-- Written by `make docs` from omnigraph/errors: edit there. -->

Every error Omnigraph raises on purpose is an `omnigraph.errors.OmnigraphError`. Match on the class
or on its `code`, both of which are stable; the sentence in `message` is for people and may improve.
An error also carries `hint`, the next thing to try, and `details`, the facts as plain data.

| Code | Class | Kind of | Meaning |
| --- | --- | --- | --- |
"""


def errors_page() -> str:
    """The error tree as one table, parents before children."""
    rows = [
        f"| `{error.code}` | `{error.__name__}` | {parent} | {first_paragraph(error)} |\n"
        for error, parent in descendants(OmnigraphError)
    ]
    return INTRODUCTION + "".join(rows)


def descendants(error: type[OmnigraphError]) -> Iterator[tuple[type[OmnigraphError], str]]:
    """Each subclass with the name of its parent, depth first, in the order of definition."""
    for child in error.__subclasses__():
        if child.__module__ == OmnigraphError.__module__:
            yield child, f"`{error.__name__}`"
            yield from descendants(child)
