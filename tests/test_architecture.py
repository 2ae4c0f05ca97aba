"""The shape of the code: who may import whom, and what `import omnigraph` may cost.

The tables below are the architecture of `docs/design/index.md` in a form that can fail. Every
import counts, whether at the top of a module, inside a function or only for type checking. A new
room has to be entered here, with a reason that survives review.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "omnigraph"

FACADE = ""
"""The package itself, `omnigraph/__init__.py`."""

MAY_IMPORT: dict[str, str] = {
    # the languages, and what everything stands on
    "errors": "",
    "model": "errors",
    "syntax": "errors model",
    "effects": "errors model",
    "schema": "errors model syntax",
    "query": "errors model syntax schema",
    # the database
    "storage": "errors model syntax effects",
    "views": "errors model schema query storage",
    "commit": "errors model syntax effects schema query storage",
    "branching": "errors model syntax effects schema storage views commit",
    "upkeep": "errors model effects schema storage commit copies",
    "copies": "errors model effects storage commit branching",
    "review": "errors model effects strict_yaml storage commit branching",
    "engines": "errors model schema query storage",
    "engines.local": "errors model syntax schema query storage views engines",
    # it runs the kernels of the local engine in workers, and cancels its jobs as loads do
    "engines.spark": "errors model syntax query storage views engines engines.local pipeline.spark",
    "computing": "errors model syntax schema storage engines engines.local",
    "embedding": "errors model",
    "strict_yaml": "errors model syntax",
    "access": "errors model",
    "audit": "errors model effects",
    "policy": "errors model syntax strict_yaml schema query views",
    "pipeline.spark": "errors model effects",
    "loading": "errors model effects schema query storage commit pipeline.spark",
    "pipeline": "errors model effects schema embedding storage views commit branching"
    " computing loading pipeline.spark",
    "graph": "errors model audit syntax effects schema query embedding policy views storage commit"
    " branching review upkeep copies engines engines.local engines.spark computing loading pipeline"
    " pipeline.spark",
    "inference": "errors model effects schema commit loading graph",
    "pipeline.files": "errors model syntax effects schema strict_yaml embedding loading review"
    " pipeline pipeline.spark graph",
    "spark": "errors model schema storage views commit branching policy pipeline graph",
    "translate": "errors model syntax schema query",
    # the faces
    "wire": "errors model",
    "client": "errors model wire",
    "mcp": "errors model query graph client",
    "lsp": "errors model syntax query",
    "server": "errors model syntax effects query strict_yaml embedding access audit policy review"
    " graph cluster wire",
    "cluster": "errors model syntax effects strict_yaml schema query embedding policy review graph",
    "cli": "errors model effects syntax schema query translate embedding access audit policy views"
    " copies graph loading pipeline pipeline.spark client mcp lsp cluster server inference"
    " pipeline.files",
    "__main__": "cli",
}
"""Room → rooms it may import. A dotted room is a part of a room with rules of its own."""

FACADE_MAY_IMPORT = "errors model schema query graph client inference pipeline.files"

CONFINED: dict[str, str] = {
    "lance": "storage pipeline pipeline.spark loading",
    "obstore": "effects",
    "pyspark": "pipeline pipeline.spark pipeline.files loading engines.spark",
    "py4j": "pipeline pipeline.spark pipeline.files loading",
    "cedarpy": "policy",
    "starlette": "server",
    "uvicorn": "server",
    "jwt": "access",
    "mcp": "mcp",
    "mcp_types": "mcp",
    "pygls": "lsp",
    "lsprotocol": "lsp",
    "typer": "cli",
    "click": "cli",
    "rich": "cli",
    "prompt_toolkit": "cli",
}
"""Library → the only rooms that know it."""

STANDARD_LIBRARY_ONLY = {"errors", "syntax"}

HEAVY = {
    *CONFINED,
    *("httpx", "mcp", "numpy", "obstore", "pandas", "polars", "pyarrow", "pydantic", "ruamel"),
}
"""Libraries that cost start-up time: they load when a call needs them."""


def room_of(module: str) -> str | None:
    """The room a dotted module name (without `omnigraph.`) belongs to; `None` if there is none."""
    if module == FACADE:
        return FACADE
    fitting = [r for r in MAY_IMPORT if module == r or module.startswith(r + ".")]
    return max(fitting, key=len, default=None)


def module_name(package: Path, path: Path) -> str:
    """`engines/local/match.py` → `engines.local.match`; the facade is the empty name."""
    parts = path.relative_to(package).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_of(package: Path, path: Path) -> Iterator[tuple[int, str]]:
    """Line and absolute dotted name of everything `path` imports, however it does so."""
    here = ["omnigraph", *path.relative_to(package).parent.parts]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.Import(names=names):
                yield from ((node.lineno, alias.name) for alias in names)
            case ast.ImportFrom(module=module, names=names, level=level):
                base = here[: len(here) - level + 1] if level else []
                origin = ".".join([*base, *([module] if module else [])])
                # `from omnigraph import schema` names a room in its second half, so both count.
                yield from ((node.lineno, f"{origin}.{alias.name}") for alias in names)
            case ast.Call(func=func, args=[ast.Constant(value=str() as name), *_]):
                called = func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "")
                if called in {"import_module", "__import__"}:
                    yield node.lineno, name


def violations(package: Path) -> list[str]:
    """Every import of the tree that the tables do not allow, one readable line each."""
    found = []
    for path in sorted(package.rglob("*.py")):
        room = room_of(module_name(package, path))
        place = path.relative_to(package).as_posix()
        if room is None:
            found.append(f"{place}: unknown room; enter it in {Path(__file__).name}")
            continue
        allowed = (FACADE_MAY_IMPORT if room == FACADE else MAY_IMPORT[room]).split()
        for line, name in imports_of(package, path):
            top, _, rest = name.partition(".")
            if top != "omnigraph":
                rooms = CONFINED.get(top)
                if rooms is not None and room not in rooms.split():
                    found.append(f"{place}:{line}: {top} belongs to {rooms}")
                if room in STANDARD_LIBRARY_ONLY and top not in sys.stdlib_module_names:
                    found.append(f"{place}:{line}: {room} takes only the standard library")
                continue
            target = room_of(rest) or FACADE
            if target == FACADE and rest.startswith("__version__"):
                continue
            if target != room and target not in allowed:
                found.append(f"{place}:{line}: {room or 'omnigraph'} may not import {name}")
    return found


def test_imports_follow_the_allowed_directions():
    assert violations(PACKAGE) == []


def test_rule_tables_name_known_rooms_and_have_no_cycle():
    graph = {room: set(allowed.split()) for room, allowed in MAY_IMPORT.items()}
    named = set().union(*graph.values(), *(rooms.split() for rooms in CONFINED.values()))
    assert named | STANDARD_LIBRARY_ONLY | set(FACADE_MAY_IMPORT.split()) <= graph.keys()
    TopologicalSorter(graph).prepare()  # raises CycleError


def test_design_page_shows_the_same_directions():
    page = (ROOT / "docs" / "design" / "index.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \|.*\| (.*) \|$", page, re.MULTILINE)
    everywhere = {"errors", "model"}
    shown = {room: set(re.findall(r"`(\w+)", cell)) - everywhere for room, cell in rows}
    ruled = {
        room: {name.partition(".")[0] for name in allowed.split()} - everywhere - {room}
        for room, allowed in MAY_IMPORT.items()
        if "." not in room and room != "__main__"
    }
    assert shown == ruled


@pytest.mark.parametrize(
    ("place", "text", "expected"),
    [
        (
            "errors/a.py",
            "from omnigraph.model import types",
            "may not import omnigraph.model.types",
        ),
        ("schema/compile.py", "import omnigraph.query", "may not import omnigraph.query"),
        ("schema/compile.py", "from omnigraph import query", "may not import omnigraph.query"),
        ("schema/compile.py", "from ..query import parse", "may not import omnigraph.query.parse"),
        ("schema/a/b.py", "from ...query import parse", "may not import omnigraph.query.parse"),
        ("model/ids.py", "def f():\n    import omnigraph.graph", "may not import omnigraph.graph"),
        (
            "model/ids.py",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import omnigraph.effects",
            "model/ids.py:3: model may not import omnigraph.effects",
        ),
        (
            "query/plan.py",
            "from importlib import import_module\nimport_module('omnigraph.engines.local')",
            "may not import omnigraph.engines.local",
        ),
        ("model/ids.py", "from omnigraph import Graph", "may not import omnigraph.Graph"),
        ("engines/local/run.py", "import omnigraph.pipeline", "may not import"),
        ("engines/local/run.py", "import pyspark.sql", "pyspark belongs to pipeline"),
        ("query/plan.py", "from lance import dataset", "lance belongs to storage pipeline"),
        ("graph.py", "def f():\n    import cedarpy", "cedarpy belongs to policy"),
        ("wire/models.py", "import starlette", "starlette belongs to server"),
        ("graph.py", "from rich.table import Table", "rich belongs to cli"),
        ("errors/a.py", "import orjson", "errors takes only the standard library"),
        ("__init__.py", "from omnigraph.storage import layout", "may not import omnigraph.storage"),
        ("helpers/text.py", "", "helpers/text.py: unknown room"),
        ("helpers.py", "", "helpers.py: unknown room"),
    ],
)
def test_a_forbidden_import_is_reported(tmp_path: Path, place: str, text: str, expected: str):
    file = tmp_path / place
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    (report,) = violations(tmp_path)
    assert expected in report


def test_allowed_imports_are_not_reported(tmp_path: Path):
    files = {
        "__init__.py": "from omnigraph.errors import Conflict\n__version__ = '1'",
        "errors/a.py": "import json",
        "schema/__init__.py": "from . import parse\nfrom omnigraph.syntax.tokens import Source",
        "query/parse.py": "from omnigraph.schema import catalog\nimport numpy",
        "pipeline/spark/run.py": "import pyspark\nfrom omnigraph.model.ids import TableKey",
        "pipeline/load.py": "import lance\nimport omnigraph.pipeline.spark.run",
        "cli/main.py": "import typer\nfrom omnigraph import __version__",
    }
    for place, text in files.items():
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place).write_text(text, encoding="utf-8")
    assert violations(tmp_path) == []


def test_every_package_has_a_docstring_and_content():
    for folder in sorted({path.parent for path in PACKAGE.rglob("*.py")}):
        init = folder / "__init__.py"
        assert init.is_file(), f"{folder.name}/ has no __init__.py"
        tree = ast.parse(init.read_text(encoding="utf-8"))
        assert ast.get_docstring(tree), f"{folder.name}/__init__.py has no docstring"
        others = [path for path in folder.rglob("*.py") if path != init]
        assert others or len(tree.body) > 1, f"{folder.name}/ is empty"


COUNTERPARTS = {
    *("ForEach", "LimitPer", "ListItem", "TextQuery", "Unnest"),  # of the syntax, and of the plan
    "PatternMatcher",  # of both engines
}
"""Names of classes that stand for one thing in two forms."""


def test_one_name_stands_for_one_public_class():
    found: dict[str, list[str]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found.setdefault(node.name, []).append(path.relative_to(PACKAGE).as_posix())
    shared = {name: places for name, places in found.items() if len(places) > 1}
    assert {name: places for name, places in shared.items() if name not in COUNTERPARTS} == {}
    assert shared.keys() == COUNTERPARTS


def test_import_omnigraph_loads_no_heavy_library():
    code = "import sys, omnigraph; print(*sys.modules, sep='\\n')"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.partition(".")[0] for name in run.stdout.split()}
    assert "omnigraph" in loaded
    assert loaded.isdisjoint(HEAVY), sorted(loaded.intersection(HEAVY))
    assert "importlib.metadata" not in run.stdout.split(), "a third of the time, for hints alone"
