"""Write the pages that the code already knows. Run it with `make docs`.

A test compares the committed pages with what this module makes, so they cannot drift apart.
"""

from __future__ import annotations

import json
from pathlib import Path

from docs.generators.cli import cli_page, index_of_commands
from docs.generators.conformance import conformance_pages
from docs.generators.errors import errors_page
from docs.generators.http import http_page
from docs.generators.licences import licences_page
from docs.generators.owners import code_owners
from docs.generators.pipelines import pipelines_page
from docs.generators.sdk import python_page, values_page
from docs.generators.settings import settings_page
from omnigraph.cli.help import INDEX
from omnigraph.wire.openapi import openapi

DOCS = Path(__file__).parent
OWNERS = DOCS.parent / ".github" / "owners.toml"


def pages() -> dict[Path, str]:
    """Every generated page: its place and its text."""
    reference = DOCS / "reference"
    description = openapi()
    return {
        reference / "cli.md": cli_page(),
        reference / "errors.md": errors_page(),
        reference / "http.md": http_page(description),
        reference / "licences.md": licences_page(),
        reference / "openapi.json": json.dumps(description, indent=2) + "\n",
        reference / "pipeline-files.md": pipelines_page(),
        reference / "python.md": python_page(),
        reference / "settings.md": settings_page(),
        reference / "values.md": values_page(),
        **conformance_pages(),
        INDEX: index_of_commands(),
        OWNERS.with_name("CODEOWNERS"): code_owners(OWNERS.read_text(encoding="utf-8")),
    }


if __name__ == "__main__":
    # The page of the command line is made from the index, so that one comes first.
    INDEX.write_text(index_of_commands(), encoding="utf-8")
    for path, text in pages().items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
