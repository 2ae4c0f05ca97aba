"""Small things that several generated pages need."""

from __future__ import annotations

import inspect


def first_paragraph(subject: object) -> str:
    """The opening sentence or two of a docstring, as Markdown on one line."""
    paragraph = (inspect.getdoc(subject) or "").partition("\n\n")[0]
    return cell(" ".join(paragraph.split()).replace("``", "`"))


def cell(text: str) -> str:
    """A text that may stand in a cell of a table."""
    return text.replace("|", "\\|")
