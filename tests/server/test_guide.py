"""The page about the server shows what a server really answers."""

from __future__ import annotations

import argparse
import json
import re
import shlex
from pathlib import Path

import httpx
import pytest

from omnigraph.cli.main import main
from omnigraph.server.auth import TOKENS_FILE
from omnigraph.server.config import GraphSpec
from tests.server.live import Live, serving

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "server.md"
FILE = re.compile(r"This is `([\w.]+)`.*?\n\n```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SESSION = re.compile(r"^```console\n\$ (.*?)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CHANCE = re.compile(r'"[0-7][0-9A-HJKMNP-TV-Z]{25}"|"created_at":\d+')


def curl(live: Live, words: list[str]) -> str:
    """What the command of that name would print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("-s", action="store_true")
    parser.add_argument("-X", dest="method")
    parser.add_argument("-H", dest="headers", action="append", default=[])
    parser.add_argument("-d", dest="data")
    asked = parser.parse_args(words)
    method = asked.method or ("POST" if asked.data is not None else "GET")
    headers = [tuple(header.split(": ", 1)) for header in asked.headers]
    url = asked.url.replace("localhost:8080", live.url)
    return httpx.request(method, url, headers=headers, content=asked.data).text + "\n"


def test_the_guide_shows_what_the_server_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    text = PAGE.read_text(encoding="utf-8")
    for name, content in FILE.findall(text):
        (tmp_path / name).write_text(content, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tokens.json").chmod(0o600)
    (init, created), (serve, listening), *calls = SESSION.findall(text)
    assert main(shlex.split(init)[1:]) == 0
    assert capsys.readouterr().out == created
    assert listening == "OMNIGRAPH_LISTEN_ADDR=127.0.0.1:8080\n"
    options = shlex.split(serve)
    assert options[1:5] == ["omnigraph", "serve", "--store", "team.omni"]
    spec = GraphSpec("default", "team.omni", (Path("people.gq"),), Path("policy.yaml"))
    with serving(spec, environment={TOKENS_FILE: "tokens.json"}) as live:
        assert len(calls) == 4
        for command, expected in calls:
            _, *words = shlex.split(command)
            printed = curl(live, words)
            assert CHANCE.sub("-", printed) == CHANCE.sub("-", expected)


def test_the_guide_names_every_path():
    from omnigraph.wire.operations import GRAPH, OPERATIONS

    text = PAGE.read_text(encoding="utf-8")
    for operation in OPERATIONS:
        if operation.successor is None:
            path = operation.path.removeprefix(GRAPH)
            path = re.sub(
                r"\{(branch|commit_id)\}", lambda m: {"branch": "{name}"}.get(m[1], "{id}"), path
            )
            assert f"`{operation.method} {path}`" in text, operation.id


def test_the_guide_shows_json():
    for _, shown in SESSION.findall(PAGE.read_text(encoding="utf-8"))[2:]:
        json.loads(shown)
