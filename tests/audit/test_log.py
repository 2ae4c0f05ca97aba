"""Lines of an audit: whole, rotated, synced, and what happens where they cannot be written."""

from __future__ import annotations

import json
import os
import stat
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.audit import AuditFilter, AuditLog, Auditor, AuditSettings, read_entries
from omnigraph.audit import log as log_module
from omnigraph.audit.auditor import Asked
from omnigraph.audit.reading import SCHEMA, graph_records
from omnigraph.errors import AuditUnavailable, InputError
from omnigraph.graph import open_graph
from omnigraph.server.config import GraphSpec
from tests.server.live import ADD, PEOPLE, new_graph, serving

FULL = Path("/dev/full")
"""A file that never has room."""


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_lines_of_threads_are_whole_and_rotation_loses_none(tmp_path: Path):
    path = tmp_path / "audit.jsonl"
    log = AuditLog(AuditSettings(path, bytes_max=2_000))

    def write(writer: int) -> None:
        for number in range(50):
            log.write(json.dumps({"writer": writer, "number": number}).encode() + b"\n")

    threads = [threading.Thread(target=write, args=(each,)) for each in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    log.close()
    files = sorted(tmp_path.iterdir())
    assert len(files) > 2
    assert all(each.stat().st_size <= 2_000 for each in files)
    found = [line for each in files for line in lines_of(each)]
    assert sorted((each["writer"], each["number"]) for each in found) == [
        (writer, number) for writer in range(4) for number in range(50)
    ]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_lines_that_may_wait_are_written_in_their_order_by_the_next_line_or_by_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = tmp_path / "audit.jsonl"
    log = AuditLog(AuditSettings(path))
    log.add(lambda: b"first\n")
    log.add(lambda: b"second\n")
    log.write(b"third\n")  # as the decision about a write, which does not wait
    assert path.read_bytes() == b"first\nsecond\nthird\n"
    thread = log._thread
    assert thread is not None
    log.add(lambda: b"fourth\n")
    thread.join(60)  # it ends when there was nothing to do for a second
    assert not thread.is_alive()
    assert path.read_bytes().endswith(b"fourth\n")
    log.add(lambda: b"fifth\n")
    assert log._thread not in (None, thread)
    log.flush()
    assert path.read_bytes().endswith(b"fifth\n")
    monkeypatch.setattr(log_module, "WRITE_SECONDS", 3600)
    monkeypatch.setattr(log_module, "WAITING_MAX", 10)
    slow = AuditLog(AuditSettings(path))
    for number in range(12):
        slow.add(lambda number=number: b"%d\n" % number)  # type: ignore[misc]
    assert b"10\n" in path.read_bytes()
    log.close()
    slow.close()
    assert len(path.read_bytes().splitlines()) == 5 + 12


@pytest.mark.filterwarnings("ignore:lance is not fork-safe")
def test_a_child_does_not_write_what_waits_in_its_parent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = tmp_path / "audit.jsonl"
    log = AuditLog.at(AuditSettings(path))
    monkeypatch.setattr(log_module, "WRITE_SECONDS", 3600)
    log.write(b"before\n")
    log._waiting.append(lambda: b"of the parent\n")
    child = os.fork()
    if child == 0:
        log.write(b"of the child\n")
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    log.close()
    assert path.read_bytes() == b"before\nof the child\nof the parent\n"


def test_lines_are_json_whatever_names_and_requests_are_called(tmp_path: Path):
    path = tmp_path / "audit.jsonl"
    auditor = Auditor(AuditSettings(path), 'a "graph"')
    asked = Asked('act-"é', 'req\\"1', None, "read", "b'\n", None, True, None)
    line, outer = auditor.begin("query")
    auditor.decided(asked)
    line.rows, line.types = 3, frozenset({"Ü", "A"})
    auditor.end(line, outer, InputError("x"))
    auditor.decided(asked._replace(allowed=False, request_id=None, rule_id="r"))
    auditor.log.flush()
    decision, access, denied = lines_of(path)
    assert list(access)[:3] == list(decision)[:3] == ["time", "event", "graph"]
    assert (decision["actor"], decision["request_id"]) == ('act-"é', 'req\\"1')
    assert (access["types"], access["rows"], access["error"]) == (["A", "Ü"], 3, "bad_request")
    assert "address" not in access and access["rules"] == [] and access["seconds"] >= 0
    assert (denied["decision"], denied["rules"], "request_id" in denied) == ("deny", ["r"], False)
    assert decision["time"] <= access["time"] <= denied["time"]


def test_two_logs_of_one_file_share_it_and_follow_a_rotation(tmp_path: Path):
    path = tmp_path / "audit.jsonl"
    one, other = (AuditLog(AuditSettings(path, bytes_max=size)) for size in (10, 1_000))
    one.write(b"first\n")
    one.write(b"second\n")  # puts the file aside
    other._checked_at -= 10  # a second later, the other one looks
    other.write(b"third\n")
    assert path.read_bytes() == b"second\nthird\n"
    for log in (one, other):
        log.close()


def test_a_place_that_cannot_be_written_is_refused_at_once(tmp_path: Path):
    with pytest.raises(InputError, match="cannot be written"):
        AuditLog(AuditSettings(tmp_path / "missing" / "audit.jsonl"))
    with pytest.raises(InputError, match="cannot be written"):
        og.open(str(new_graph(tmp_path / "graph.omni").uri), audit=tmp_path)


def test_c_acc_013_a_full_disk_stops_reads_and_writes_where_the_audit_is_required(tmp_path: Path):
    new_graph(tmp_path / "graph.omni")
    strict = open_graph(tmp_path / "graph.omni", audit=AuditSettings(FULL, required=True))
    head = open_graph(tmp_path / "graph.omni").list_commits()[0].graph_commit_id
    with pytest.raises(AuditUnavailable, match="no space left on device"):
        strict.query(PEOPLE)
    with pytest.raises(AuditUnavailable):
        strict.mutate(ADD, {"name": "x"})
    assert open_graph(tmp_path / "graph.omni").list_commits()[0].graph_commit_id == head
    lenient = open_graph(tmp_path / "graph.omni", audit=AuditSettings(FULL))
    assert lenient.query(PEOPLE).row_count == 2


def test_c_acc_013_a_server_says_why_it_stopped_and_goes_on_by_itself(tmp_path: Path):
    new_graph(tmp_path / "graph.omni")
    spec = GraphSpec("default", str(tmp_path / "graph.omni"))
    settings = AuditSettings(FULL, required=True, bytes_max=1 << 30)
    with serving(spec, waits=False, audit=settings, metrics=True) as live:
        client = live.client()
        refused = client.post("/query", json={"query": PEOPLE})
        assert refused.status_code == 503
        assert refused.json()["error_code"] == "audit_unavailable"
        assert "no space left on device" in refused.json()["error"]
        write = client.post("/mutate", json={"query": ADD, "params": {"name": "x"}})
        assert write.status_code == 503
        ready = live.client(graph_id=None).get("/readyz")
        assert ready.status_code == 503
        assert ready.json()["audit"]["problem"] == "no space left on device"
        assert ready.json()["audit"]["lines_lost"] >= 2
        page = live.client(graph_id=None).get("/metrics").text
        assert "omnigraph_audit_lines_lost" in page
        assert live.server.services.audit is not None
        log = live.server.services.audit.log
        log.close()
        log.settings = AuditSettings(tmp_path / "audit.jsonl", required=True)  # there is room again
        assert client.post("/query", json={"query": PEOPLE}).status_code == 200
        assert live.client(graph_id=None).get("/readyz").status_code == 200


def test_without_being_required_a_full_disk_is_counted_and_shown(tmp_path: Path):
    new_graph(tmp_path / "graph.omni")
    spec = GraphSpec("default", str(tmp_path / "graph.omni"))
    with serving(spec, waits=False, audit=AuditSettings(FULL, bytes_max=1 << 31)) as live:
        assert live.client().post("/query", json={"query": PEOPLE}).status_code == 200
        ready = live.client(graph_id=None).get("/readyz")
        assert (ready.status_code, ready.json()["status"]) == (200, "degraded")
        assert ready.json()["audit"]["required"] is False


# --- reading --------------------------------------------------------------------------------------


def entry(moment: str, actor: str, *types: str) -> bytes:
    facts = {"time": moment, "event": "access", "actor": actor, "types": types, "decision": "allow"}
    return json.dumps(facts).encode() + b"\n"


def test_lines_are_found_by_actor_type_and_time(tmp_path: Path):
    path = tmp_path / "audit.jsonl"
    fresh = (datetime.now(UTC) - timedelta(minutes=5)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    path.write_bytes(
        entry("2026-01-01T00:00:00.000000Z", "act-ana", "Person")
        + entry("2026-02-01T00:00:00.000000Z", "act-bo", "Person", "City")
        + entry(fresh, "act-bo", "City")
        + b'{"time": "cut of'
    )

    def found(**wanted: str) -> int:
        asked = AuditFilter.of(wanted.get("actor"), wanted.get("type"), wanted.get("since"))
        return len(list(read_entries([path], asked)))

    assert found() == 3
    assert found(type="Person") == 2
    assert found(actor="act-bo") == 2
    assert found(actor="act-bo", type="Person") == 1
    assert found(since="2026-01-15") == 2
    assert found(since="2026-02-01T01:00+01:00") == 2
    assert found(since="1h") == 1
    with pytest.raises(InputError, match="`yesterday` is no moment"):
        found(since="yesterday")


def test_what_is_no_audit_is_named_with_its_place(tmp_path: Path):
    path = tmp_path / "notes.txt"
    path.write_text("hello\nworld\n")
    with pytest.raises(InputError, match=r"line 1 of .*notes\.txt is no line of an audit"):
        list(read_entries([path], AuditFilter()))
    with pytest.raises(InputError, match="cannot be read: no such file"):
        list(read_entries([tmp_path / "missing"], AuditFilter()))


def test_lines_are_loaded_into_a_graph_once(tmp_path: Path):
    path = tmp_path / "audit.jsonl"
    path.write_bytes(
        entry("2026-01-01T00:00:00.000000Z", "act-ana", "Person")
        + entry("2026-02-01T00:00:00.000000Z", "act-bo", "Person", "City")
    )
    graph = og.init(tmp_path / "audit.omni", SCHEMA)
    for _ in range(2):
        records = graph_records(read_entries([path], AuditFilter()))
        graph.load(data=iter(list(records)), mode="merge")
    rows = graph.query(
        'query who { match { $t: TouchedType { name: "Person" }  $a touched $t  $a doneBy $who } '
        "return { $who.name as name } order { name } }"
    ).to_pylist()
    assert rows == [{"name": "act-ana"}, {"name": "act-bo"}]
