"""What the project says about itself is true: owners, suites, papers."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from docs.generate import OWNERS
from docs.generators.owners import code_owners

ROOT = Path(__file__).parents[2]
RFCS = ROOT / "docs" / "rfcs"
NOT_SUITES = {"support", "__pycache__"}


def test_every_owned_path_exists_and_every_role_owns_something():
    known = tomllib.loads(OWNERS.read_text(encoding="utf-8"))
    paths = [path for entry in known["owns"] for path in entry["paths"] if path != "*"]
    assert [path for path in paths if not (ROOT / path).exists()] == []
    assert {entry["role"] for entry in known["owns"]} == set(known["roles"])


def test_owners_are_rendered_in_order_from_the_root():
    roles = """
    [roles]
    all = ["@a/one", "@a/two"]
    few = ["@a/few"]
    [[owns]]
    role = "all"
    paths = ["*"]
    [[owns]]
    role = "few"
    paths = ["src/x/", "README.md"]
    """
    lines = code_owners(roles).splitlines()[1:]
    assert lines == ["* @a/one @a/two", "/src/x/ @a/few", "/README.md @a/few"]


def test_the_testing_map_names_every_suite():
    table = (ROOT / "docs" / "dev" / "testing.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`tests/([a-z0-9_]+)(?:\.py)?`", table))
    folders = {each.name for each in (ROOT / "tests").iterdir() if each.is_dir()}
    files = {each.stem for each in (ROOT / "tests").glob("test_*.py")}
    assert named == (folders | files) - NOT_SUITES


def test_every_rfc_is_listed_with_its_title_and_its_status():
    index = (RFCS / "index.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| \[(\d{4})\]\((\S+)\) \| (.+) \| (.+) \|$", index, re.MULTILINE)
    papers = {path.name: path.read_text(encoding="utf-8") for path in RFCS.glob("[0-9]*.md")}
    assert [name for _, name, _, _ in rows] == sorted(papers)
    for number, name, title, status in rows:
        heading = f"# RFC {number}: {title[0].lower()}{title[1:]}\n"
        assert papers[name].startswith(heading)
        assert f"- Status: {status} " in papers[name] or f"- Status: {status}\n" in papers[name]
