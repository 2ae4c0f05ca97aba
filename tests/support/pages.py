"""A page of the documentation as a script: what it shows is done, in its order, and compared.

- A block below "This is `name`" is written to a file of that name.
- A command `$ omnigraph …` in a `console` block is run, and has to print what follows it, or what
  goes into the file behind a `>`.
- A `python` block is run; all blocks of a page share their names. A `text` block below "It prints"
  is what the last one printed.
- A `pg` block has to compile, and a `gq` block has to, against the schema of the page.
- A `json` block is one document, or one a line; a `yaml` block is one, too. A `sh` block, which is
  for other machines, is only read by a shell.

Ids, moments, cursors and tags differ from run to run: an id of the page stands for one id of the
run, and may be used in later commands. Paths are shown without the folder they are in.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from omnigraph.cli.main import main
from omnigraph.query.compile import check_query
from omnigraph.query.explain import explain
from omnigraph.schema.catalog import Catalog
from omnigraph.schema.compile import compile_schema
from omnigraph.syntax.query_parser import parse_query_file

ROOT = Path(__file__).parents[2]
EXAMPLE_SCHEMA = ROOT / "examples" / "social" / "schema.pg"

BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE_NAME = re.compile(r"This is `([\w.-]+)`")
ID = re.compile(r"\b(?:[0-7][0-9A-HJKMNP-TV-Z]{25}\b|AQ[E-P][\w-]{90,})")
"""An id, or a cursor."""
SHORT_ID = re.compile(r"\bcr-[0-9A-HJKMNP-TV-Z]{14}\b")
"""The beginning of the id of a change request, as lists show it."""
MOMENT = re.compile(r"\b\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\b")
ETAG = re.compile(r'"[0-9a-f]{32}"')

RUN = ("console", "python", "pg", "gq", "json", "yaml", "sh")
"""The languages of blocks that are tried."""


@dataclass(frozen=True)
class Block:
    """One block of a page, and the paragraph above it."""

    language: str
    text: str
    lead: str

    @property
    def file_name(self) -> str | None:
        """The file that the block is, if the paragraph says so."""
        names: list[str] = FILE_NAME.findall(self.lead)
        return names[-1] if names else None

    @property
    def is_output(self) -> bool:
        """Whether it shows what the Python before it prints."""
        return self.language == "text" and self.lead.startswith("It prints")


def blocks_of(page: Path) -> list[Block]:
    """The blocks of a page, in order."""
    text = page.read_text(encoding="utf-8")
    return [
        Block(found[1], found[2], text[: found.start()].strip().rpartition("\n\n")[2])
        for found in BLOCK.finditer(text)
    ]


def commands_of(session: str) -> Iterator[tuple[list[str], str]]:
    """The words of each command of a session, and what is shown below it."""
    for part in re.split(r"^\$ ", session, flags=re.MULTILINE)[1:]:
        command, _, shown = part.partition("\n")
        yield shlex.split(command, comments=True), shown


def same_but_for_chance(text: str) -> str:
    """A text without what differs from run to run."""
    without_ids = SHORT_ID.sub("(short id)", ID.sub("(id)", text))
    return ETAG.sub("(etag)", MOMENT.sub("(moment)", without_ids))


@dataclass
class Script:
    """One run of one page, in the current folder."""

    page: Path
    captured: Callable[[], tuple[str, str]]
    """What went to stdout and to stderr since it was asked last."""
    names: dict[str, Any] = field(default_factory=dict)
    """The names that the Python of the page has defined."""
    real_ids: dict[str, str] = field(default_factory=dict)
    """An id of the page, and the one it stands for."""
    outputs: list[str] = field(default_factory=list)
    """What each block of Python printed."""

    def run(self) -> None:
        """Do all of it."""
        for block in blocks_of(self.page):
            if block.file_name is not None:
                Path(block.file_name).write_text(block.text, encoding="utf-8")
            self._try(block)

    def _try(self, block: Block) -> None:
        if block.is_output:
            _compare(self.outputs[-1], block.text, "the Python above")
        match block.language:
            case "console":
                for words, shown in commands_of(block.text):
                    self._command(words, shown)
            case "python":
                self.captured()
                exec(compile(block.text, str(self.page), "exec"), self.names)
                self.outputs.append(self.captured()[0])
            case "pg":
                compile_schema(block.text)
            case "gq":
                file = parse_query_file(block.text)
                assert file.queries
                if "typo" not in (block.file_name or ""):
                    catalog = self._catalog()
                    for query in file.queries:
                        assert explain(check_query(query, file.source, catalog))
            case "json":
                _documents(block.text)
            case "yaml":
                assert YAML(typ="safe").load(block.text)
            case "sh":
                subprocess.run(["bash", "-n", "-c", block.text], check=True)

    def _command(self, words: list[str], shown: str) -> None:
        words, target = (words[:-2], words[-1]) if words[-2:-1] == [">"] else (words, None)
        program, *arguments = words
        if program == "make":
            return  # `test_structure` looks whether such a target exists
        assert Path(program).name == "omnigraph", f"{self.page.name} runs {program}"
        self.captured()
        given = [ID.sub(lambda found: self.real_ids[found[0]], argument) for argument in arguments]
        code = main(given)
        printed, complaints = self.captured()
        printed = printed.replace(f"{Path.cwd()}/", "")
        assert code == 0 or shown, f"{' '.join(words)} fails: {complaints}"
        if target is not None:
            Path(target).write_text(printed, encoding="utf-8")
            return
        _compare(printed, shown, f"{' '.join(words)}\n{complaints}")
        for on_page, real in zip(ID.findall(shown), ID.findall(printed), strict=True):
            assert self.real_ids.setdefault(on_page, real) == real
        assert len(set(self.real_ids.values())) == len(self.real_ids)

    def _catalog(self) -> Catalog:
        """The schema of the page, or the one of the example that the guides share."""
        schemas = [block.text for block in blocks_of(self.page) if block.language == "pg"]
        return compile_schema(schemas[0] if schemas else EXAMPLE_SCHEMA).catalog


def _compare(printed: str, shown: str, what: str) -> None:
    real, expected = same_but_for_chance(printed), same_but_for_chance(shown)
    assert real == expected, f"{what} prints\n{printed}\nand the page shows\n{shown}"


def _documents(text: str) -> None:
    try:
        json.loads(text)
    except ValueError:
        for line in text.splitlines():
            json.loads(line)


def run_page(
    page: Path,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Script:
    """Run a page in an empty folder that has the examples of the repository in it."""
    (folder / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("OMNIGRAPH_HOME", str(folder / "home"))
    monkeypatch.delenv("OMNIGRAPH_PROFILE", raising=False)
    script = Script(page, capsys.readouterr)
    script.run()
    return script
