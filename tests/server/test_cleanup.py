"""Reads of a served graph while its old versions are removed by another process or handle."""

from __future__ import annotations

from pathlib import Path

from omnigraph.graph import init
from omnigraph.server.config import GraphSpec
from tests.server.cleaning import Disturbed
from tests.server.live import serving

SCHEMA = "node Person { name: String @key  text: String? }"


def test_reads_beside_a_live_cleanup_are_right_or_say_that_the_version_is_gone(
    tmp_path: Path,
) -> None:
    root = tmp_path / "graph.omni"
    init(root, SCHEMA).close()
    with serving(GraphSpec("default", str(root))) as live:
        disturbed = Disturbed(root, live.client)
        seen = disturbed.seen

        def is_enough() -> bool:
            return disturbed.cleanups >= 4 and seen["head"] >= 40 and seen["right"] >= 40

        disturbed.run(is_enough)
    disturbed.require_removed()
