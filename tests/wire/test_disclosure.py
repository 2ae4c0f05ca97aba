"""Errors of the server's side: a full disk has a status of its own, and no body names a place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import pytest

import omnigraph as og
from omnigraph.effects.failures import from_os_error
from omnigraph.errors import OmnigraphError, OutOfSpace, RecoveryRequired
from omnigraph.storage.failures import lance_failure
from omnigraph.wire.failures import envelope_of, error_of, status_of, without_places

FULL = OSError("LanceError(IO): Generic LocalFileSystem error: No space left (os error 28), x.rs:1")
ADD = "query add($n: String) { insert Person { name: $n } }"


def fail(*_: Any, **__: Any) -> Any:
    raise FULL


@pytest.mark.parametrize("where", ["stage", "commit"])
def test_a_full_disk_is_out_of_space_wherever_a_write_meets_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    graph = og.init(tmp_path / "graph.omni", schema="node Person { name: String @key }")
    name = {"stage": "merge_insert", "commit": "commit"}[where]
    with monkeypatch.context() as patched:
        patched.setattr(lance.LanceDataset, name, fail)
        with pytest.raises(OutOfSpace) as refused:
            graph.mutate(ADD, {"n": "ada"})
    assert status_of(refused.value) == 507
    assert envelope_of(refused.value)["error_code"] == "out_of_space"
    assert "free some disk space" in (refused.value.hint or "")
    graph.mutate(ADD, {"n": "ada"})


def test_a_write_that_a_full_disk_interrupted_is_507_and_still_says_what_to_recover() -> None:
    interrupted = RecoveryRequired("01OP", "the write was interrupted", "the next write mends it")
    interrupted.__cause__ = from_os_error(OSError(28, "No space left"), "write to", "/data/g/x")
    assert status_of(interrupted) == 507
    body = envelope_of(interrupted)
    assert body["error_code"] == "out_of_space"
    assert body["recovery_required"] == {"operation_id": "01OP"}
    assert isinstance(error_of(507, body), RecoveryRequired)
    assert isinstance(error_of(507, envelope_of(OutOfSpace("full"))), OutOfSpace)


PLACES = (
    "/srv/graphs/team.omni/nodes/0000000000000002-000000000000000a is at version 4",
    "s3://lake/graphs/knowledge/__manifest could not be used",
    "recovery sidecar __recovery/01OP.json is not JSON",
    "cannot reach http://minio.internal:9000/lake?prefix=x",
    "version 3 of '/srv/graphs/team.omni/edges/1' is gone",
)


@pytest.mark.parametrize("sentence", PLACES)
def test_no_body_of_a_failing_server_names_a_bucket_an_endpoint_a_key_or_a_path(
    sentence: str,
) -> None:
    body = envelope_of(RecoveryRequired("01OP", sentence, f"look at {sentence}"))
    text = f"{body['error']} {body['hint']}"
    for place in ("srv", "team.omni", "lake", "minio", "__recovery/", "__manifest", "nodes/"):
        assert place not in text, text


@pytest.mark.parametrize(
    "sentence", ["branch agent/42 is blocked", "run `omnigraph recover` and/or wait 3/4 s"]
)
def test_sentences_without_places_stay_as_they_are(sentence: str) -> None:
    assert without_places(sentence) == sentence


def test_a_failure_of_a_store_is_told_without_its_text() -> None:
    """S3 repeats access keys and signed headers in the bodies of its errors."""
    raw = OSError(
        "Generic S3 error: Error after 3 retries, response status code: 503, body: "
        "<Error><Code>SlowDown</Code><Key>secret</Key></Error>"
    )
    known = lance_failure("s3://lake/g/nodes/1", raw)
    assert isinstance(known, OmnigraphError)
    assert "secret" not in known.render()
    assert known.details["failure_class"] == "Transient"
