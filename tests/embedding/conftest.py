"""A provider, and a client of it that need not wait."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.embedding.provider_server import Provider, running_provider


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep keys, proxies and settings of whoever runs the tests out of them."""
    for name in list(os.environ):
        if name.startswith("OMNIGRAPH_EMBED") or name.lower().endswith(("_api_key", "_proxy")):
            monkeypatch.delenv(name)


@pytest.fixture
def provider() -> Iterator[Provider]:
    with running_provider() as running:
        yield running
