"""Numbers and messages that the guides quote are those of the code."""

from __future__ import annotations

from pathlib import Path

import pytest

from omnigraph.branching.spill import SpillLimits
from omnigraph.commit import leases, plan
from omnigraph.loading import checks, inputs, pieces, staging
from omnigraph.pipeline.spark import java, session

GUIDE = Path(__file__).parents[2] / "docs" / "guide"
MIB, GIB = 1 << 20, 1 << 30


@pytest.mark.parametrize(
    ("page", "said", "meant"),
    [
        ("branches", "(256 MiB by default)", SpillLimits().memory_bytes == 256 * MIB),
        (
            "branches",
            "`OMNIGRAPH_SPILL_BYTES_MAX` (64 GiB)",
            SpillLimits().spill_bytes_max == 64 * GIB,
        ),
        ("blobs", "512 MiB by default", plan.DEFAULT_LIMITS.bytes_max == 512 * MIB),
        (
            "recovery",
            "silent for 30 seconds (`OMNIGRAPH_LEASE_TTL_MS`)",
            leases.WriteSettings().ttl_ms == 30_000,
        ),
        ("spark-cluster", "4 to 128 MiB of input", pieces.TASK_BYTES_MIN == 4 * MIB),
        ("spark-cluster", "4 to 128 MiB of input", pieces.TASK_BYTES_MAX == 128 * MIB),
        ("spark-cluster", "about three of them", pieces.TASKS_PER_SLOT == 3),
        ("spark-cluster", "16 million keys a rule", checks.KEYS_MAX == 16_000_000),
        ("spark-cluster", "524,288 rows", staging.PART_ROWS_MAX == 524_288),
        ("spark-cluster", "Java 17 or newer", java.VERSION_MIN == 17),
        ("spark-cluster", "Spark from 64 MiB on", inputs.THRESHOLD_BYTES == 64 * MIB),
        (
            "spark-cluster",
            "`1g`, which is the default",
            session.SessionSettings().complete()["spark.driver.memory"] == "1g",
        ),
    ],
)
def test_what_a_page_says_is_so(page: str, said: str, meant: bool):
    assert said in (GUIDE / f"{page}.md").read_text(encoding="utf-8")
    assert meant


@pytest.mark.parametrize(
    "message",
    [
        "bulk jobs need PySpark, which is not installed",
        "is Spark Connect, which has no Spark context",
        "and none was found",
    ],
)
def test_messages_of_the_troubleshooting_are_said_by_the_code(message: str):
    sources = [Path(module.__file__ or "").read_text("utf-8") for module in (session, java)]
    assert message in (GUIDE / "spark-cluster.md").read_text(encoding="utf-8")
    assert any(message in text for text in sources)
