"""`omnigraph studio` and `serve --studio`: how the page is started, and what is sent with it."""

from __future__ import annotations

import gzip
import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from omnigraph.errors import InputError
from omnigraph.server.config import GraphSpec
from omnigraph.server.studio import FILES, Page
from studio.build import STUDIO, build
from tests.server.live import (
    PATIENCE_SECONDS,
    POLICY,
    Live,
    bearer,
    new_graph,
    serving,
    with_tokens,
)
from tests.support.forked import Command

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("studio")]

COMPRESSED_BYTES_MAX = 1_500_000


@pytest.fixture(scope="module", autouse=True)
def built() -> None:
    build()


@contextmanager
def started(root: Path, *arguments: str, **more: str) -> Iterator[tuple[Command, str]]:
    """The command, once it has printed its address."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("OMNIGRAPH_")}
    environment = {**kept, "OMNIGRAPH_DURABILITY": "process", **more}
    process = Command("studio", root, "--json", *arguments, env=environment)
    assert process.stdout is not None and process.stderr is not None
    try:
        text = ""
        while not text.endswith("}\n"):
            line = process.stdout.readline().decode()
            assert line, process.stderr.read().decode()
            text += line
        yield process, json.loads(text)["address"]
    finally:
        process.kill()
        process.wait(PATIENCE_SECONDS)
        process.stdout.close()
        process.stderr.close()


def test_c_stu_001_the_command_prints_an_address_whose_code_works_once_and_ctrl_c_ends_it(
    tmp_path: Path,
):
    root = tmp_path / "team.omni"
    new_graph(root)
    # Tokens of a server in the environment are not meant for this one.
    token_of_another = {"OMNIGRAPH_SERVER_BEARER_TOKEN": "another"}
    with started(root, "--no-open", **token_of_another) as (process, address):
        url, _, fragment = address.partition("/studio/#")
        assert url.startswith("http://127.0.0.1:")
        code = dict(part.split("=") for part in fragment.split("&"))["code"]
        graph = f"{url}/graphs/default/branches"
        assert httpx.get(f"{url}/studio/").status_code == 200
        assert httpx.get(graph).status_code == 401
        given = httpx.post(f"{url}/session", json={"code": code}).json()
        session = {"Authorization": f"Bearer {given['token']}"}
        assert httpx.get(graph, headers=session).json() == {"branches": ["main"]}
        again = httpx.post(f"{url}/session", json={"code": code})
        assert (again.status_code, again.json()["error_code"]) == (401, "unauthorized")
        assert "omnigraph studio" in again.json()["hint"]
        # The owner may do everything, and a stranger nothing.
        made = {"name": "agent/1"}
        assert httpx.post(graph, json=made).status_code == 401
        assert httpx.post(graph, json=made, headers=session).status_code == 200
        other = {"Authorization": "Bearer another"}
        assert httpx.get(graph, headers=other).status_code == 401
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_SECONDS) == 0
        said, logged = process.communicate()
        assert (said, logged) == (b"", b""), "requests are not logged on the terminal"


def test_c_stu_001_without_no_open_the_browser_is_opened_at_the_address(tmp_path: Path):
    root = tmp_path / "team.omni"
    new_graph(root)
    opened = tmp_path / "opened"
    program = tmp_path / "browser"
    program.write_text(f'#!/bin/sh\nprintf %s "$1" > {opened}\n')
    program.chmod(0o755)
    os.mkfifo(opened)
    with started(root, BROWSER=str(program)) as (_, address):
        assert opened.read_text() == address, "reading waits until the program has written"


def test_c_stu_008_the_page_is_sent_with_a_strict_policy_and_no_token_is_in_a_log(
    tmp_path: Path,
):
    root = tmp_path / "team.omni"
    new_graph(root)
    policy = tmp_path / "policy.yaml"
    policy.write_text(POLICY)
    spec = GraphSpec("default", str(root), policy=policy)
    with serving(spec, environment=with_tokens(), studio=True) as live:
        client = live.client(graph_id=None)
        page = client.get("/studio/")
        rules = dict(
            rule.split(" ", 1) for rule in page.headers["Content-Security-Policy"].split("; ")
        )
        assert rules["default-src"] == "'none'"
        assert rules["script-src"] == rules["style-src"] == rules["connect-src"] == "'self'"
        assert [rule for rule in rules if "unsafe" in rules[rule]] == ["style-src-attr"]
        assert page.headers["X-Content-Type-Options"] == "nosniff"
        assert page.headers["Referrer-Policy"] == "no-referrer"
        moved = client.get("/studio", follow_redirects=True)
        assert str(moved.url) == f"{live.url}/studio/"
        missing = client.get("/studio/..%2Fauth.py")
        assert (missing.status_code, missing.json()["code"]) == (404, "not_found")
        assert client.post("/session", json={"code": "x"}).status_code == 401
        client.get("/graphs/default/branches", headers=bearer("act-ana"))
        assert not any("token-of-ana" in line for line in live.events)
        assert any('"/studio/"' in line for line in live.events)


def test_permissions_follow_the_policy_of_the_branch(tmp_path: Path):
    root = tmp_path / "team.omni"
    new_graph(root).create_branch("side")
    policy = tmp_path / "policy.yaml"
    policy.write_text(POLICY)
    with serving(GraphSpec("default", str(root), policy=policy), environment=with_tokens()) as live:

        def allowed(actor: str, branch: str) -> set[str]:
            found = live.client(actor).get("/permissions", params={"branch": branch}).json()
            assert (found["actor_id"], found["branch"]) == (actor, branch)
            return set(found["actions"])

        common = {"read", "export", "branch_create", "branch_merge"}
        assert allowed("act-bo", "main") == common
        assert allowed("act-bo", "side") == common | {"change"}
        assert allowed("act-ana", "main") >= {"change", "schema_apply", "branch_delete"}
        assert allowed("act-cy", "main") == set()


def test_the_page_is_small_and_a_browser_gets_it_compressed(live_open: Live):
    sizes = [len(gzip.compress(path.read_bytes())) for path in FILES.iterdir()]
    assert sum(sizes) <= COMPRESSED_BYTES_MAX
    client = live_open.client(graph_id=None)
    plain = client.get("/studio/", headers={"Accept-Encoding": "identity"})
    assert "Content-Encoding" not in plain.headers
    packed = client.get("/studio/")
    assert packed.headers["Content-Encoding"] == "gzip"
    assert plain.text == packed.text
    assert plain.headers["Cache-Control"] == "no-cache"
    (script,) = [path.name for path in FILES.glob("index-*.js")]
    assert f"./{script}" in plain.text
    assert "immutable" in client.get(f"/studio/{script}").headers["Cache-Control"]


def test_the_licences_of_what_is_in_the_page_are_sent_with_it(live_open: Live):
    answer = live_open.client(graph_id=None).get("/studio/THIRD-PARTY.txt")
    assert answer.headers["Content-Type"] == "text/plain; charset=utf-8"
    assert answer.headers["Cache-Control"] == "no-cache"
    wanted = json.loads((STUDIO / "package.json").read_text())["dependencies"]
    for name, version in wanted.items():
        assert (
            f"\n{name} {version} (MIT)\n" in answer.text
            or f"\n{name} {version} (ISC)\n" in answer.text
        )
    assert answer.text.count("Permission") >= len(wanted), "with their whole texts"


@pytest.fixture
def live_open(tmp_path: Path) -> Iterator[Live]:
    root = tmp_path / "team.omni"
    new_graph(root)
    with serving(GraphSpec("default", str(root)), studio=True) as live:
        yield live


def test_a_server_without_studio_has_no_page(tmp_path: Path):
    root = tmp_path / "team.omni"
    new_graph(root)
    with serving(GraphSpec("default", str(root))) as live:
        assert live.client(graph_id=None).get("/studio/").status_code == 404


def test_a_page_that_is_not_built_is_an_error_with_the_command(tmp_path: Path):
    with pytest.raises(InputError, match="not built") as refused:
        Page(tmp_path)
    assert refused.value.hint is not None and "make studio" in refused.value.hint
