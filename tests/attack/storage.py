"""Attacks on what lies in storage, and on processes that write there."""

from __future__ import annotations

import itertools
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import httpx
import orjson

from omnigraph.errors import OmnigraphError
from omnigraph.graph import doctor, init, open_graph
from tests.attack.target import ADD, ATTACKER, SCHEMA, client, new_graph, rows, rss_mb, server
from tests.crash import processes
from tests.crash.operations import INSERT, seeded
from tests.effects.s3_server import create_bucket, interruptible_s3
from tests.effects.s3_server import environment as s3_environment
from tests.server.cleaning import Disturbed
from tests.server.test_process import environment
from tests.support.sidecars import contents, interrupted, names

ADD_TEXT = "query add($n: String, $t: String) { insert Person { name: $n, text: $t } }"
NAMES = "query names { match { $p: Person } return { $p.name } order { $p.name } }"


def hostile_sidecars(folder: Path, _seconds: float) -> str:
    """Sidecars that name other folders, other graphs and transactions of others."""
    tried = 0
    for kind in ("SchemaApply", "Mutation"):
        made = interrupted(folder / kind, kind)
        neighbour = made.root.parent / "other.omni"
        shutil.copytree(made.copy, neighbour)
        before = contents(neighbour)
        for location in ("nodes", ".", "..", "../other.omni/nodes", "/etc", "edges", "__manifest"):
            record = orjson.loads(orjson.dumps(made.record))
            for entry in [*record.get("registrations", []), *record.get("tables", [])]:
                entry["location"] = location
            root = made.fresh(record)
            tables = set(contents(root / "nodes"))
            with server(root) as process, client(process, ATTACKER) as asking:
                assert asking.get("/schema").status_code == 200
            assert tables <= set(contents(root / "nodes")), location
            assert contents(neighbour) == before, location
            assert names(open_graph(root, "read_only")) == ["kept"]
            assert "sidecar_refused" in [found.code for found in doctor(root).findings]
            tried += 1
    return f"{tried} set aside, no table lost"


def damaged_files(folder: Path, seconds: float) -> str:
    """Every file in turn, deleted or cut: the right answer, or a typed error."""
    root, whole = folder / "graph.omni", folder / "whole"
    graph = new_graph(root, 20, 2)
    graph.ensure_indices()
    graph.create_branch("review")
    for number in range(3):
        graph.mutate(ADD, {"n": f"new{number}"})
    graph.close()
    expected = names(open_graph(root, "read_only"))
    files = sorted(path.relative_to(root) for path in root.rglob("*") if path.is_file())
    shutil.copytree(root, whole)
    damages = list(itertools.product(files, ("deleted", "cut")))
    ends = time.monotonic() + max(seconds, 30)
    right = typed = 0
    # A step that shares no factor with their number visits all of them, evenly.
    for number in range(len(damages)):
        if time.monotonic() > ends:
            break
        path, how = damages[number * 101 % len(damages)]
        shutil.rmtree(root)
        shutil.copytree(whole, root)
        damaged = root / path
        if how == "deleted":
            damaged.unlink()
        else:
            damaged.write_bytes(damaged.read_bytes()[: damaged.stat().st_size // 2])
        try:
            seen = names(open_graph(root, "read_only"))
        except OmnigraphError:
            typed += 1
        else:
            assert seen == expected, f"{how} {path}: {len(seen)} names of {len(expected)}"
            right += 1
        doctor(root)
    return f"{right + typed} of {len(damages)} tried: {right} right answers, {typed} typed errors"


def killed_neighbour(folder: Path, _seconds: float) -> str:
    """Another process dies between two tables; the server's next write must work."""
    root = folder / "graph.omni"
    seeded(str(root))
    took = []
    with server(root) as process, client(process, ATTACKER) as asking:
        for number in range(5):
            processes.killed("update", root, "mutation.post_table_commit=kill")
            add = {"query": INSERT, "params": {"person": f"p{number}", "city": f"c{number}"}}
            began = time.monotonic()
            answer = asking.post("/mutate", json=add)
            took.append(time.monotonic() - began)
            assert answer.status_code == 200, answer.text
            assert httpx.get(f"{process.url}/readyz").status_code == 200
    return f"{len(took)} kills, each healed by the next write, slowest {max(took) * 1000:.0f} ms"


def killed_server(folder: Path, seconds: float) -> str:
    """Kill the server while clients write; each asks again with its key until it is answered."""
    root = folder / "graph.omni"
    new_graph(root, 1, 1)
    ends = time.monotonic() + max(seconds, 10)
    acknowledged: list[str] = []
    kills = unknown = 0
    numbers = itertools.count()
    pending: str | None = None
    while time.monotonic() < ends:
        with server(root) as process, client(process, ATTACKER, timeout=5) as asking:
            dies = time.monotonic() + 0.5 + 0.3 * (kills % 4)
            while True:
                name = pending or f"n{next(numbers)}"
                if time.monotonic() > dies:
                    process.send(signal.SIGKILL)
                    kills += 1
                    dies = float("inf")
                try:
                    answer = asking.post(
                        "/mutate",
                        json={"query": ADD, "params": {"n": name}},
                        headers={"Idempotency-Key": f"key-{name}"},
                    )
                except httpx.TransportError:
                    pending = name
                    unknown += 1
                    break
                assert answer.status_code == 200, answer.text
                acknowledged.append(name)
                pending = None
    found = names(open_graph(root))
    assert len(found) == len(set(found)), "a write is there twice"
    missing = set(acknowledged) - set(found)
    assert not missing, f"lost: {sorted(missing)[:5]}"
    return (
        f"{kills} kills, {unknown} unknown outcomes asked again, {len(acknowledged)} writes, 0 lost"
    )


def reads_beside_cleanup(folder: Path, seconds: float) -> str:
    """Read commits whose versions are being removed: each is right, or said to be gone."""
    root = folder / "graph.omni"
    init(root, SCHEMA).close()
    ends = time.monotonic() + max(seconds, 10)
    with server(root) as process:
        disturbed = Disturbed(root, lambda: client(process, ATTACKER))
        disturbed.run(lambda: time.monotonic() > ends)
    disturbed.require_removed()
    seen = disturbed.seen
    return (
        f"{seen.total()} reads beside {disturbed.cleanups} cleanups and {len(disturbed.commits)} "
        f"writes: {seen['reclaimed']} said to be gone, all others right"
    )


def lost_store(folder: Path, seconds: float) -> str:
    """Take the S3 server away for three seconds, again and again, while clients write."""
    ends = time.monotonic() + max(seconds, 10)
    acknowledged: list[str] = []
    refused = outages = 0
    with interruptible_s3() as s3, ExitStack() as stack:
        create_bucket(s3.endpoint, "graphs")
        access = s3_environment(s3.endpoint)
        uri = "s3://graphs/attacked"
        made = [sys.executable, "-m", "omnigraph.cli", "init", uri, "--schema", "schema.pg"]
        (folder / "schema.pg").write_text(SCHEMA, encoding="utf-8")
        subprocess.run(made, cwd=folder, env=environment(**access), check=True, capture_output=True)
        process = stack.enter_context(server(uri, tokens=True, folder=folder, **access))
        asking = stack.enter_context(client(process, ATTACKER))

        def write(name: str) -> httpx.Response:
            return asking.post(
                "/mutate",
                json={"query": ADD, "params": {"n": name}},
                headers={"Idempotency-Key": f"key-{name}"},
            )

        for number in itertools.count():
            if time.monotonic() > ends and outages:
                break
            if number % 8 == 5:
                outages += 1
                s3.stop()
                back = threading.Timer(3, s3.start)
                back.start()
            while (answer := write(f"n{number}")).status_code != 200:
                assert answer.status_code == 503, answer.text
                assert answer.json()["outcome"] in ("unknown", "not_begun"), answer.text
                refused += 1
            acknowledged.append(f"n{number}")
        back.join()
        found = [row["p.name"] for row in rows(asking.post("/query", json={"query": NAMES}))]
    assert sorted(found) == sorted(acknowledged), "lost or doubled"
    return f"{outages} outages, {refused} typed refusals, {len(found)} writes, 0 lost, 0 doubled"


def full_disk(folder: Path, _seconds: float) -> str:
    """Lower the largest file of the server's process from outside, more and more room each time."""
    root = folder / "graph.omni"
    init(root, SCHEMA).close()
    refused = 0
    with server(root) as process, client(process, ATTACKER) as asking:
        pid = process.process.pid
        unlimited = resource.prlimit(pid, resource.RLIMIT_FSIZE)
        for number, room in enumerate(range(0, 24_000, 400)):
            body = {"query": ADD_TEXT, "params": {"n": f"n{number}", "t": "x" * 20_000}}
            named = {"Idempotency-Key": f"key-{number}"}
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (room, unlimited[1]))
            answer = asking.post("/mutate", json=body, headers=named)
            resource.prlimit(pid, resource.RLIMIT_FSIZE, unlimited)
            if answer.status_code != 200:
                assert answer.status_code in (503, 507), answer.text
                refused += 1
                answer = asking.post("/mutate", json=body, headers=named)
            assert answer.status_code == 200, answer.text
        found = rows(asking.post("/query", json={"query": NAMES}))
    assert len(found) == number + 1, "lost or doubled"
    assert names(open_graph(root, "read_only")) == sorted(row["p.name"] for row in found)
    return f"{refused} refused for want of room, {len(found)} writes, 0 lost, 0 doubled"


def many_writes(folder: Path, seconds: float) -> str:
    """Memory per served write, once the caches are full."""
    root = folder / "graph.omni"
    new_graph(root, 100, 2)
    numbers = itertools.count()
    with (
        server(root, OMNIGRAPH_CACHE_BYTES=str(64 << 20)) as process,
        client(process, ATTACKER) as asking,
    ):

        def write() -> int:
            ends = time.monotonic() + seconds
            for count in itertools.count():
                if count >= 400 and time.monotonic() > ends:
                    return count
                body = {"query": ADD, "params": {"n": f"w{next(numbers)}"}}
                answer = asking.post("/mutate", json=body)
                assert answer.status_code == 200, answer.text
            raise AssertionError

        write()
        before = rss_mb(process)
        written = write()
        each = (rss_mb(process) - before) / written
    assert each < 0.1, f"{each:.2f} MB for each write"
    return f"{written} writes after warming up, {each * 1024:.0f} KiB each"
