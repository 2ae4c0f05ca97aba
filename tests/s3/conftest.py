"""One S3 server for the run, a fresh prefix for each test, and its address in the environment."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from tests.effects import s3_server

BUCKET = "graphs"


@pytest.fixture(scope="session")
def s3() -> Iterator[s3_server.InterruptibleS3]:
    with s3_server.interruptible_s3() as server:
        s3_server.create_bucket(server.endpoint, BUCKET)
        yield server


@pytest.fixture(scope="session")
def s3_endpoint(s3: s3_server.InterruptibleS3) -> str:
    return s3.endpoint


@pytest.fixture
def uri(s3_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Where a graph may be made; processes started by the test reach it too."""
    s3_server.use(s3_endpoint, monkeypatch)
    return f"s3://{BUCKET}/{uuid.uuid4().hex}"
