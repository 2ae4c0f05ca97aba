"""How Omnigraph is installed: from a checkout or a wheel, and what hints and pages say about it."""

from __future__ import annotations

import importlib.metadata
import json
import re
import subprocess
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from omnigraph.errors import install_command

ROOT = Path(__file__).parents[2]
PROMISES = re.compile(
    r"(?:"
    r"(?:pip3? (?:install|download)|uv (?:add|pip install)) (?:--?[\w-]+(?:[ =][\w./-]+)? )*"
    r"|(?:pipx (?:install|run)|uv tool (?:install|run)|uvx(?: --from)?) "
    r")['\"]?omnigraph(?:\[[\w,]+\])?(?=['\"\s`.,;)]|$)(?! @)"
)
"""Commands that install Omnigraph by its name, from an index that does not have it."""


def tracked() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, text=True
    ).stdout
    return [ROOT / name for name in listed.split("\0") if name]


def test_nothing_promises_that_omnigraph_is_on_an_index() -> None:
    found = []
    for path in tracked():
        if path == Path(__file__) or not path.is_file():
            continue
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        found += [f"{path.relative_to(ROOT)}: {hit[0]}" for hit in PROMISES.finditer(text)]
    assert found == []


@pytest.mark.parametrize(
    ("text", "is_promise"),
    [
        ("pip install omnigraph", True),
        ("`pip install 'omnigraph[spark]'`", True),
        ('pip install "omnigraph[server,policy]"', True),
        ("pip install --constraint constraints.txt 'omnigraph[spark]'", True),
        ("pip install -U omnigraph", True),
        ("python -m pip download --no-deps omnigraph && cp", True),
        ("pipx install omnigraph", True),
        ("uvx omnigraph --version", True),
        ("uv tool install 'omnigraph[server]'", True),
        ("pip install '.[server]'", False),
        ("pip install ./dist/omnigraph-0.1.0-py3-none-any.whl", False),
        ("pip install 'omnigraph[spark] @ file:///x/omnigraph.whl'", False),
        ("uvx --from ./dist/omnigraph-0.1.0-py3-none-any.whl omnigraph --version", False),
        ("pip install networkx", False),
    ],
)
def test_a_promise_is_recognised(text: str, is_promise: bool) -> None:
    assert bool(PROMISES.search(text)) is is_promise


class Installed:
    """What `importlib.metadata` knows of an installation."""

    def __init__(self, origin: dict[str, object] | None) -> None:
        self.origin = origin

    def read_text(self, name: str) -> str | None:
        assert name == "direct_url.json"
        return None if self.origin is None else json.dumps(self.origin)


@pytest.mark.parametrize(
    ("origin", "command"),
    [
        (
            {"url": "file:///home/a%20b/omnigraph", "dir_info": {"editable": True}},
            "pip install --editable '/home/a b/omnigraph[spark]'",
        ),
        (
            {"url": "file:///x/omnigraph", "dir_info": {}},
            "pip install 'omnigraph[spark] @ file:///x/omnigraph'",
        ),
        (
            {"url": "file:///x/omnigraph-0.1.0-py3-none-any.whl", "archive_info": {}},
            "pip install 'omnigraph[spark] @ file:///x/omnigraph-0.1.0-py3-none-any.whl'",
        ),
        (None, "pip install 'omnigraph[spark]'"),
    ],
)
def test_a_hint_installs_from_where_omnigraph_came_from(
    monkeypatch: pytest.MonkeyPatch, origin: dict[str, object] | None, command: str
) -> None:
    monkeypatch.setattr(importlib.metadata, "distribution", lambda name: Installed(origin))
    assert install_command("spark") == command


def test_a_hint_for_sources_that_were_never_installed_names_the_checkout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def missing(name: str) -> None:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "distribution", missing)
    assert install_command("spark") == "pip install '.[spark]'  # in a checkout of Omnigraph"
