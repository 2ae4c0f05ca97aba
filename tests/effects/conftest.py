"""Stores under test: a directory, memory, and a real S3 API on loopback."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from omnigraph.effects.local_disk import Durability
from omnigraph.effects.objects import ObjectStore, open_store
from omnigraph.effects.uri import Root
from tests.effects import s3_server
from tests.effects.scripted_s3 import ScriptedS3

BUCKET = "contract"


@pytest.fixture(scope="session")
def s3_endpoint() -> Iterator[str]:
    with s3_server.running_s3() as endpoint:
        s3_server.create_bucket(endpoint, BUCKET)
        yield endpoint


@pytest.fixture
def no_aws(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the developer's own AWS settings reaches a test."""
    for name in list(os.environ):
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)


@pytest.fixture
def s3_root(s3_endpoint: str, no_aws: None, monkeypatch: pytest.MonkeyPatch) -> Root:
    for name, value in s3_server.environment(s3_endpoint).items():
        monkeypatch.setenv(name, value)
    return Root.parse(f"s3://{BUCKET}/{uuid.uuid4().hex}")


@pytest.fixture
def local_root(tmp_path: Path) -> Root:
    return Root.parse(tmp_path / "a graph")


@pytest.fixture
def memory_root() -> Root:
    return Root.parse(f"memory://{uuid.uuid4().hex}")


@pytest.fixture(params=["local", "memory", "s3"])
def root(request: pytest.FixtureRequest) -> Root:
    """A fresh, empty root on each backend."""
    found = request.getfixturevalue(f"{request.param}_root")
    assert isinstance(found, Root)
    return found


@pytest.fixture
def store(root: Root) -> ObjectStore:
    return open_store(root, Durability.PROCESS)


@pytest.fixture
def scripted(no_aws: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedS3]:
    """An S3 endpoint that answers what the test dictates."""
    with ScriptedS3().running() as server:
        for name, value in server.environment().items():
            monkeypatch.setenv(name, value)
        yield server
