"""The page about deployment: its commands run, and its names and numbers are those of the code."""

from __future__ import annotations

import re
from pathlib import Path

import httpx
import pytest

from deploy import entrypoint
from omnigraph.branching.spill import SpillLimits
from omnigraph.cli.main import main
from omnigraph.commit import plan
from omnigraph.server import admission, pool, run
from omnigraph.server.admission import Admission
from omnigraph.server.config import CLIENT_SECONDS, SHUTDOWN_SECONDS
from omnigraph.wire import operations
from tests.deploy.launch import DEPLOY, PAGE, ROOT, serving
from tests.support.pages import run_page

TEXT = PAGE.read_text(encoding="utf-8")
OUTSIDE_THE_CONTAINER = {"OMNIGRAPH_USER"}
MISTAKE = {"OMNIGRAPH_TOKENS_FILE"}
MIB, GIB = 1 << 20, 1 << 30


def test_the_backup_of_the_page_is_restored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    run_page(PAGE, tmp_path, monkeypatch, capsys)
    assert main(["export", "restored.omni"]) == 0
    assert capsys.readouterr().out == (tmp_path / "backup.jsonl").read_text()


def test_every_variable_of_the_page_means_something():
    named = set(re.findall(r"\bOMNIGRAPH_[A-Z_]+\b", TEXT))
    assert named <= entrypoint.SETTINGS | OUTSIDE_THE_CONTAINER | MISTAKE


def test_the_page_explains_what_the_entrypoint_reads():
    asked = {*entrypoint.FLAGS, *entrypoint.SECRET_FILES, *entrypoint.SECRET_FILES.values()}
    asked |= {entrypoint.INIT_SCHEMA, entrypoint.QUERIES, entrypoint.BIND, entrypoint.ACCEPT}
    asked |= {entrypoint.TOKENS_FILE, entrypoint.UNAUTHENTICATED}
    assert [name for name in sorted(asked) if f"`{name}`" not in TEXT] == []
    assert [risk for risk in entrypoint.RISKS if f"`{risk}`" not in TEXT] == []
    assert f"exits with {entrypoint.REFUSED}" in TEXT


def test_the_mistake_of_the_page_is_told_as_it_says():
    assert "`OMNIGRAPH_TOKENS_FILE is no setting`" in TEXT
    nearest = entrypoint.nearest_setting("OMNIGRAPH_TOKENS_FILE")
    assert f"`did you mean {nearest}?`" in TEXT


def test_files_that_the_page_names_exist():
    for path in re.findall(r"\b(?:deploy|examples)/[\w./-]*\w", TEXT):
        assert (ROOT / path).exists(), path


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("bodies up to 32 MiB", operations.LOAD_BYTES_MAX == 32 * MIB),
        ("client_max_body_size 32m", operations.LOAD_BYTES_MAX == 32 * MIB),
        ("413 beyond 1 MiB", operations.BODY_BYTES_MAX == MIB),
        ("takes nothing for 30 seconds", CLIENT_SECONDS == 30),
        ("below 65 seconds", run.KEEP_ALIVE_SECONDS == 65),
        ("requests may end for 30 seconds", SHUTDOWN_SECONDS == 30),
        ("256 MiB each", SpillLimits().memory_bytes == 256 * MIB),
        ("up to 64 GiB for each", SpillLimits().spill_bytes_max == 64 * GIB),
        ("up to 512 MiB each", plan.DEFAULT_LIMITS.bytes_max == 512 * MIB),
        ("16 for one actor", Admission.from_environment({}).inflight_max == 16),
        ("32 in all", pool.WRITE_THREADS == 32),
        ("at most eight in all", admission.PROCESS_BYTES == 8 * admission.RESPONSE_BYTES),
    ],
)
def test_numbers_of_the_page_are_those_of_the_code(said: str, meant: bool):
    assert said in TEXT
    assert meant


def test_stop_times_of_the_page_are_those_of_the_files():
    assert "45 seconds pass" in TEXT and "--stop-timeout 45" in TEXT
    assert "TimeoutStopSec=45" in (DEPLOY / "omnigraph.service").read_text()
    assert "stop_grace_period: 45s" in (DEPLOY / "compose.yaml").read_text()


def test_the_page_names_exactly_the_metrics_there_are(settings: dict[str, str], tmp_path: Path):
    more = {
        "OMNIGRAPH_STORE": str(tmp_path / "new.omni"),
        "OMNIGRAPH_INIT_SCHEMA": str(ROOT / "examples" / "social" / "schema.pg"),
        "OMNIGRAPH_BIND": "127.0.0.1:0",
        "OMNIGRAPH_METRICS": "1",
    }
    with serving(settings | more) as (_, address):
        url = f"http://{address}/metrics"
        assert httpx.get(url).status_code == 401
        page = httpx.get(url, headers={"Authorization": "Bearer token-of-ana-0001"}).text
    offered = set(re.findall(r"^# TYPE (\w+)", page, re.MULTILINE))
    named = set(re.findall(r"^\| `(omnigraph_\w+)`", TEXT, re.MULTILINE))
    assert named == {name for name in offered if not name.endswith("_created")}


def test_the_page_names_every_reason_of_a_rejection():
    sources = (ROOT / "src" / "omnigraph" / "server").rglob("*.py")
    reasons = {
        reason
        for path in sources
        for reason in re.findall(r"\.rejected\(\"(\w+)\"\)", path.read_text(encoding="utf-8"))
    }
    (row,) = re.findall(r"^\| `omnigraph_rejections_total` .*$", TEXT, re.MULTILINE)
    assert set(re.findall(r"`(\w+)`", row)) - {"omnigraph_rejections_total", "reason"} == reasons
