"""A page for each chapter of the specification: its checks, and the tests that prove them.

The list of checks is `docs/conformance/checks.toml`. Which test proves what is read from the tests:
a function names its checks (`test_c_bra_017_…`), so does the first line of a module of which every
test proves one, and a case in a YAML file has them in `ids`. A check that nothing cites is open.
"""

from __future__ import annotations

import re
import tomllib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "conformance"
CHECKS = FOLDER / "checks.toml"
TESTS = ROOT / "tests"

FUNCTION = re.compile(r"^\s*(?:async )?def (test_\w+)", re.MULTILINE)
IN_NAME = re.compile(r"c_([a-z]{3,4})_(\d{3}(?:_(?:and_)?\d{3})*)(?!_to_\d)")
IN_TEXT = re.compile(r"\bC-[A-Z]{3,4}-\d{3}\b")
MODULE_DOCSTRING = re.compile(r'\A"""(.*?)"""', re.DOTALL)
WHOLE_FILE = "every test of the file"

INDEX = """\
# Conformance

<!-- Written by `make docs` from docs/conformance/checks.toml and the tests. -->

What Omnigraph has to do is written down as numbered checks, chapter by chapter. Each page lists the
checks of a chapter, and the tests that prove them. `pytest -k c_bra_017` runs the tests named after
one. A check without a test is shown as **open**, whatever the code may do.

| Chapter | About | Checks | Proved | Open |
| --- | --- | ---: | ---: | ---: |
"""


@dataclass(frozen=True, slots=True)
class Chapter:
    """One chapter and its checks, each with a title."""

    name: str
    title: str
    about: str
    checks: Mapping[str, str]
    same: Mapping[str, str] = field(default_factory=dict)
    """Checks that say what one of another chapter says, whose tests prove both."""
    open: str = ""
    """Why some of its checks are."""


Proofs = Mapping[str, Mapping[str, list[str]]]
"""By check and file: what the tests there say they prove."""


def chapters() -> list[Chapter]:
    """All chapters, in the order of reading."""
    listed = tomllib.loads(CHECKS.read_text(encoding="utf-8"))["chapter"]
    return [Chapter(**entry) for entry in listed]


def proofs(tests: Path = TESTS) -> Proofs:
    """What the tests cite."""
    found: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for path in sorted(tests.rglob("*")):
        if path.suffix in (".py", ".yaml"):
            place = path.relative_to(tests.parent).as_posix()
            for check, sentence in _citations(path):
                if sentence not in found[check][place]:
                    found[check][place].append(sentence)
    return found


def conformance_pages() -> dict[Path, str]:
    """The overview, and a page for each chapter."""
    known, rows = proofs(), []
    written: dict[Path, str] = {}
    for chapter in chapters():
        proved = sum(chapter.same.get(check, check) in known for check in chapter.checks)
        total = len(chapter.checks)
        rows.append(
            f"| [{chapter.title}]({chapter.name}.md) | {chapter.about} "
            f"| {total} | {proved} | {total - proved} |\n"
        )
        written[FOLDER / f"{chapter.name}.md"] = _page(chapter, known, proved)
    return {FOLDER / "index.md": INDEX + "".join(rows)} | written


def _page(chapter: Chapter, known: Proofs, proved: int) -> str:
    total = len(chapter.checks)
    count = f"{proved} of {total} checks are proved by tests."
    lines = [
        f"# Conformance: {chapter.title[0].lower()}{chapter.title[1:]}",
        "",
        "<!-- Written by `make docs` from docs/conformance/checks.toml and the tests. -->",
        "",
        " ".join(filter(None, [chapter.about, count, chapter.open])),
    ]
    for check, title in chapter.checks.items():
        lines += ["", f"## {check}", "", f"{title[0].upper()}{title[1:]}."]
        cited = chapter.same.get(check, check)
        if cited != check:
            lines += ["", f"Proved with {cited}:"]
        lines += ["", *_proved_by(known[cited])] if cited in known else ["", "**Open**: no test."]
    return "\n".join(lines) + "\n"


def _proved_by(places: Mapping[str, list[str]]) -> Iterator[str]:
    for place, sentences in places.items():
        yield f"- [`{place}`](../../{place})"
        yield from (f"    - {sentence}" for sentence in sentences)


def _citations(path: Path) -> Iterator[tuple[str, str]]:
    """Each check a file cites, with what is said about it."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".yaml":
        contents: Any = YAML(typ="safe").load(text)
        for case in contents.get("cases", ()):
            yield from ((check, case["name"]) for check in case.get("ids", ()))
        return
    if opening := MODULE_DOCSTRING.match(text):
        yield from ((check, WHOLE_FILE) for check in IN_TEXT.findall(opening[1]))
    for name in FUNCTION.findall(text):
        cited = list(IN_NAME.finditer(name))
        if cited:
            rest = name[cited[-1].end() :].strip("_").replace("_", " ")
            for match in cited:
                for number in re.findall(r"\d{3}", match[2]):
                    yield f"C-{match[1].upper()}-{number}", rest or name
