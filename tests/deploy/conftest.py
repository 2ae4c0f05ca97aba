"""A folder to deploy into."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.deploy.launch import Fake, fake_program

TOKENS = '{"act-ana": "token-of-ana-0001"}'


@pytest.fixture
def fake(tmp_path: Path) -> Fake:
    return fake_program(tmp_path / "programs")


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    """A file of tokens that only its owner reads."""
    path = tmp_path / "tokens.json"
    path.write_text(TOKENS)
    path.chmod(0o400)
    return path


@pytest.fixture
def settings(tmp_path: Path, tokens: Path) -> dict[str, str]:
    """The least that a server needs."""
    store = tmp_path / "team.omni"
    store.mkdir()
    return {"OMNIGRAPH_STORE": str(store), "OMNIGRAPH_SERVER_BEARER_TOKENS_FILE": str(tokens)}
