"""Write the reference pages that the code already knows. Run it with `make docs`.

A test compares the committed pages with what this module makes, so they cannot drift apart.
"""

from __future__ import annotations

import inspect
import json
import tomllib
from collections.abc import Iterator
from pathlib import Path

from omnigraph.cli.exit_codes import ExitCode
from omnigraph.cli.help import all_pages
from omnigraph.cli.main import app
from omnigraph.errors import OmnigraphError
from omnigraph.wire.openapi import openapi

DOCS = Path(__file__).parent
OWNERS = DOCS.parent / ".github" / "owners.toml"

ERRORS_INTRODUCTION = """\
# Errors

<!-- Written by `make docs` from omnigraph/errors.py: edit there. -->

Every error Omnigraph raises on purpose is an `omnigraph.errors.OmnigraphError`. Match on the class
or on its `code`, both of which are stable; the sentence in `message` is for people and may improve.
An error also carries `hint`, the next thing to try, and `details`, the facts as plain data.

| Code | Class | Kind of | Meaning |
| --- | --- | --- | --- |
"""

CLI_INTRODUCTION = """\
# Command line

<!-- Written by `make docs` from omnigraph/cli: edit there. -->

Results go to stdout; warnings, progress and errors go to stderr. Every command takes `--json`, and
one that fails then also writes the error as JSON to stdout, or to stderr where stdout is a stream
of data. Nothing is coloured in a pipe.

A graph is named by its URI, which is an argument or `--uri`, or by `--store`; else by `--profile`
or `OMNIGRAPH_PROFILE`; else by `defaults.store` in `~/.omnigraph/config.yaml`. A flag that a
command cannot use is an error before anything is read.

| Exit code | Meaning |
| --- | --- |
"""


def pages() -> dict[Path, str]:
    """Every generated page: its place and its text."""
    reference = DOCS / "reference"
    return {
        reference / "errors.md": errors_page(),
        reference / "cli.md": cli_page(),
        reference / "openapi.json": openapi_page(),
        OWNERS.with_name("CODEOWNERS"): code_owners(OWNERS.read_text(encoding="utf-8")),
    }


def code_owners(roles: str) -> str:
    """The list of owners that reviews are asked by, from the file that says who has which role."""
    known = tomllib.loads(roles)
    lines = ["# Written by `make docs` from .github/owners.toml: edit there."]
    for entry in known["owns"]:
        owners = " ".join(known["roles"][entry["role"]])
        lines += [f"{path if path == '*' else '/' + path} {owners}" for path in entry["paths"]]
    return "\n".join(lines) + "\n"


def cli_page() -> str:
    """The help pages of every command, one section each."""
    codes = "".join(f"| {code:d} | {code.meaning} |\n" for code in ExitCode)
    sections = [f"\n## {name}\n\n```text\n{page}\n```\n" for name, page in all_pages(app).items()]
    return CLI_INTRODUCTION + codes + "".join(sections)


def openapi_page() -> str:
    """The description of the HTTP interface."""
    return json.dumps(openapi(), indent=2) + "\n"


def errors_page() -> str:
    """The error tree as one table, parents before children."""
    rows = [
        f"| `{error.code}` | `{error.__name__}` | {parent} | {first_paragraph(error)} |\n"
        for error, parent in descendants(OmnigraphError)
    ]
    return ERRORS_INTRODUCTION + "".join(rows)


def descendants(error: type[OmnigraphError]) -> Iterator[tuple[type[OmnigraphError], str]]:
    """Each subclass with the name of its parent, depth first, in the order of definition."""
    for child in error.__subclasses__():
        if child.__module__ == OmnigraphError.__module__:
            yield child, f"`{error.__name__}`"
            yield from descendants(child)


def first_paragraph(subject: type) -> str:
    """The opening sentence or two of a docstring, as Markdown on one line."""
    paragraph = (inspect.getdoc(subject) or "").partition("\n\n")[0]
    return " ".join(paragraph.split()).replace("``", "`").replace("|", "\\|")


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
