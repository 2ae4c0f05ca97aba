"""What the site does beyond MkDocs, which calls these functions.

The papers at the root of the repository become pages below `project/`, and the figures of the
benchmark one beside its description. Links are written so that they work in the repository; here
those to papers are turned to their pages, and those to sources, which the site does not have,
become plain text. Blocks of our two languages get their colours.
"""

from __future__ import annotations

import html
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

DOCS = Path(__file__).parent
ROOT = DOCS.parent

PAPERS = {
    "CHANGELOG.md": "project/changelog.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "GOVERNANCE.md": "project/governance.md",
    "SECURITY.md": "project/security.md",
    "bench/records/small.md": "design/figures.md",
}
HOME = {"README.md": "index.md"}
"""Said twice, for two kinds of visitors."""

FENCED = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)\s]+)\)")

LANGUAGES = ("pg", "gq")
TOKEN = re.compile(
    r"""(?P<c>//[^\n]*|/\*.*?\*/)        # a comment
    |(?P<s>"(?:[^"\\]|\\.)*")           # a string
    |(?P<nd>@\w+)                        # an annotation
    |(?P<nv>\$\w+)                       # a variable
    |(?P<k>\b(?:node|edge|interface|implements|enum
        |query|match|return|distinct|order|limit|offset|having|desc|asc|as|via
        |not|any|all|optional|insert|update|set|delete|where|and|or
        |in|is|null|contains|starts_with|true|false)\b)
    |(?P<nc>\b[A-Z]\w*)                  # a type
    |(?P<mi>\b\d[\d.]*\b)               # a number
    """,
    re.VERBOSE | re.DOTALL,
)
"""The groups have the names that the theme has colours for."""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Show the blocks of our languages with colours."""
    fences = [{"name": name, "class": "highlight", "format": coloured} for name in LANGUAGES]
    config.mdx_configs.setdefault("pymdownx.superfences", {})["custom_fences"] = fences
    return config


def coloured(source: str, *_: Any, **__: Any) -> str:
    """A block of code as HTML."""
    pieces, end = [], 0
    for token in TOKEN.finditer(source):
        pieces.append(html.escape(source[end : token.start()]))
        pieces.append(f'<span class="{token.lastgroup}">{html.escape(token[0])}</span>')
        end = token.end()
    pieces.append(html.escape(source[end:]))
    return f'<div class="highlight"><pre><code>{"".join(pieces)}</code></pre></div>'


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the papers."""
    for paper, page in PAPERS.items():
        files.append(File.generated(config, page, abs_src_path=str(ROOT / paper)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """The text of a page with links that the site can follow."""
    assert page.file.abs_src_path is not None
    source = Path(page.file.abs_src_path)
    return "".join(
        part if part.startswith("```") else _relinked(part, source, page.file.src_uri)
        for part in FENCED.split(markdown)
    )


def _relinked(text: str, source: Path, place: str) -> str:
    def followed(link: re.Match[str]) -> str:
        label, target = link[1], link[2]
        if re.match(r"[a-z]+:|#", target):
            return link[0]
        path, hash_sign, anchor = target.partition("#")
        destination = _page_of((source.parent / path).resolve())
        if destination is None:
            return label
        relative = os.path.relpath(destination, Path(place).parent)
        return f"[{label}]({relative}{hash_sign}{anchor})"

    return "".join(
        part if part.startswith("`") else LINK.sub(followed, part) for part in _by_code(text)
    )


def _by_code(text: str) -> Iterator[str]:
    """A text in pieces that are code, and pieces that are not and may hold whole links."""
    yield from re.split(r"((?<!\[)`[^`\n]+`(?!\]))", text)


def _page_of(file: Path) -> str | None:
    """Where the site has a file of the repository, if it does."""
    if file.is_relative_to(DOCS):
        return file.relative_to(DOCS).as_posix()
    if file.is_relative_to(ROOT):
        return (PAPERS | HOME).get(file.relative_to(ROOT).as_posix())
    return None
