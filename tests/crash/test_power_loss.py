"""Recovery is as durable as the writes it settles: all it leaves is on disk when it returns."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from omnigraph.effects.failpoints import armed
from omnigraph.effects.local_disk import configured_durability
from omnigraph.errors import RecoveryRequired
from omnigraph.graph import open_graph
from tests.cost.test_durability import assert_all_flushed, new_files
from tests.crash.operations import INSERT, seeded


@pytest.fixture(autouse=True)
def durable(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("OMNIGRAPH_DURABILITY", "disk")
    configured_durability.cache_clear()
    yield
    configured_durability.cache_clear()


@pytest.mark.parametrize("branch", ["main", "review"])
@pytest.mark.parametrize(
    "point", ["mutation.post_table_commit", "mutation.post_finalize_pre_publisher"]
)
def test_what_a_recovery_leaves_behind_is_on_disk(root: Path, point: str, branch: str) -> None:
    seeded(str(root))
    graph = open_graph(root)
    # The second recovery adds to the audit that the first one made.
    for name in ("first", "second"):
        with armed(f"{point}=error*1"), pytest.raises(RecoveryRequired):
            graph.mutate(INSERT, {"person": name, "city": name}, branch=branch)
        new, events = new_files(root, graph.recover)
        assert_all_flushed(root, new, events)
