"""Faults of the storage: each gives a typed error and advice that helps, and loses nothing."""

from __future__ import annotations

import errno
import json
import os
import resource
import shutil
import subprocess
import tempfile
import threading
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import pytest

from omnigraph.effects.local_objects import Folder
from omnigraph.errors import DamagedFile, OmnigraphError, RecoveryRequired, StorageError
from omnigraph.graph import Graph, init, open_graph
from omnigraph.storage.failures import version_file
from tests.support.forked import FORK_SERVER

SCHEMA = """
node Person { name: String @key  text: String? }
node City { name: String @key }
"""
PERSON = "query add($n: String, $t: String?) { insert Person { name: $n, text: $t } }"
CITY = "query add($n: String) { insert City { name: $n } }"
NOBODY = 65534


def add(graph: Graph, name: str, text: str | None = None, branch: str | None = None) -> None:
    graph.mutate(PERSON, {"n": name, "t": text}, branch=branch)


def people(graph: Graph, branch: str | None = None) -> list[str]:
    lines = b"".join(graph.export(types=["Person"], branch=branch)).splitlines()
    return [orjson.loads(line)["data"]["name"] for line in lines]


def in_child(work: Callable[[str, str], None], directory: Path) -> Any:
    """Run ``work(directory, answer_file)`` in a process of its own, and read what it answered."""
    answer = directory / "answer.json"
    process = FORK_SERVER.Process(target=work, args=(str(directory), str(answer)))
    process.start()
    process.join(120)
    assert process.exitcode == 0
    return json.loads(answer.read_text())


def said(error: OmnigraphError) -> list[str]:
    return [type(error).__name__, error.message, error.hint or ""]


# --- disk full ------------------------------------------------------------------------------------


def fill_a_file(directory: str, answer: str) -> None:
    graph = init(Path(directory) / "graph", SCHEMA)
    add(graph, "before")
    refused = ["nothing"]
    with largest_file(64 * 1024):
        try:
            add(graph, "large", "x" * 300_000)
        except OmnigraphError as error:
            refused = said(error)
    names = people(graph)
    add(graph, "large", "x" * 300_000)
    Path(answer).write_text(json.dumps([refused, names, people(open_graph(graph.uri))]))


def test_a_file_that_cannot_grow_is_a_typed_error_and_the_same_handle_writes_on(tmp_path: Path):
    refused, names, after = in_child(fill_a_file, tmp_path)
    assert refused[0] == "StoreFull"
    assert "file too large" in refused[1]
    assert "ulimit -f" in refused[2]
    assert names == ["before"]
    assert after == ["before", "large"]


def cut_the_end(directory: str, answer: str) -> None:
    """Leave room for all of a data file but its last bytes."""
    graph = init(Path(directory) / "graph", SCHEMA)
    add(graph, "before", "x" * 10_000)
    whole = person_table(graph)[0].glob("data/*.lance")
    size = max(file.stat().st_size for file in whole)
    refused = []
    for missing in (1, 16, 200):
        with largest_file(size - missing):
            try:
                add(graph, "during", "y" * 10_000)
                refused.append("nothing")
            except OmnigraphError as error:
                refused.append(error.code)
    Path(answer).write_text(json.dumps([refused, people(open_graph(graph.uri))]))


def test_a_write_whose_data_file_is_cut_at_its_end_is_not_acknowledged(tmp_path: Path):
    """Lance reports such a file as written: what it lost, a thread of its own was told."""
    refused, names = in_child(cut_the_end, tmp_path)
    assert refused == ["out_of_space"] * 3
    assert names == ["before"]


BLOBS = "node File { name: String @key  content: Blob? }"
FILE = "query add($n: String, $c: Blob) { insert File { name: $n, content: $c } }"
IN_ONE_FILE, IN_ITS_OWN_FILE = 200_000, 5_000_000
"""Lengths of blobs that lie beside a data file: together with others, and alone."""


def cut_blobs(directory: str, answer: str) -> None:
    """Leave room for all of a file of blobs but its last bytes, in every way that writes one."""
    graph = init(Path(directory) / "graph", BLOBS)
    for number in range(5):
        graph.mutate(FILE, {"n": f"before {number}", "c": bytes([number]) * IN_ONE_FILE})
    refused = []

    def attempt(room: int, work: Callable[[], object]) -> None:
        with largest_file(room):
            try:
                work()
                refused.append("nothing")
            except OmnigraphError as error:
                refused.append(error.code)

    for length in (IN_ONE_FILE, IN_ITS_OWN_FILE):
        content = b"x" * length
        record = {"name": "loaded", "content": "base64:" + b64encode(content).decode()}
        line = json.dumps({"type": "File", "data": record})
        for missing in (1, 60_000):
            attempt(length - missing, partial(graph.mutate, FILE, {"n": "new", "c": content}))
            attempt(length - missing, partial(graph.load, data=line, mode="append"))
            attempt(length - missing, partial(graph.load, data=line, mode="merge"))
    # A compaction copies blobs: five of them into one file.
    for missing in (1, 60_000):
        attempt(5 * IN_ONE_FILE - missing, graph.optimize)
    again = open_graph(graph.uri)
    kept = [again.blob("node", "File", f"before {n}", "content").read() for n in range(5)]
    assert kept == [bytes([number]) * IN_ONE_FILE for number in range(5)]
    names = again.query("query n { match { $f: File } return { $f.name } }").to_pylist()
    again.mutate(FILE, {"n": "after", "c": b"x" * IN_ONE_FILE})
    Path(answer).write_text(json.dumps([refused, len(names)]))


def test_a_write_whose_blobs_are_cut_is_out_of_space_and_nothing_is_lost(tmp_path: Path):
    refused, count = in_child(cut_blobs, tmp_path)
    assert refused == ["out_of_space"] * 14
    assert count == 5


@pytest.mark.parametrize("nth", range(1, 8))
def test_no_room_for_any_object_of_a_write_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nth: int
):
    """A quota at the object store: the nth object cannot be written, nor any after it."""
    graph = init(tmp_path / "graph", SCHEMA)
    add(graph, "before")
    written, stage = 0, Folder.stage

    def full(folder: Folder, data: bytes) -> str:
        nonlocal written
        if threading.current_thread() is not threading.main_thread():
            return stage(folder, data)  # a lease that is renewed beside the write
        written += 1
        if written >= nth:
            raise OSError(errno.ENOSPC, "No space left on device")
        return stage(folder, data)

    monkeypatch.setattr(Folder, "stage", full)
    acknowledged = False
    try:
        add(graph, "during")
        acknowledged = True
    except (StorageError, RecoveryRequired) as refused:
        assert refused.hint
    monkeypatch.undo()
    assert acknowledged == (written < nth or nth == 3)  # the third gives the lease back
    assert people(open_graph(graph.uri)) == ["before", *(["during"] if acknowledged else [])]
    add(graph, "after")
    assert people(open_graph(graph.uri))[0] == "after"


class FullDisk:
    """A place that can be given little room: a file system of its own where one may be mounted.

    Elsewhere no file may grow beyond the room, by a limit of this process. Writes then fail at
    other steps, in the same ways.
    """

    def __init__(self, place: Path) -> None:
        self.place = place
        command = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(place)]
        try:
            done = subprocess.run(command, capture_output=True, check=False)
        except FileNotFoundError:
            self.is_mounted = False
        else:
            self.is_mounted = done.returncode == 0

    @contextmanager
    def room(self, nbytes: int) -> Iterator[None]:
        """Leave so many bytes while the block runs."""
        if not self.is_mounted:
            with largest_file(nbytes):
                yield
            return
        ballast = self.place / "ballast"
        usage = os.statvfs(self.place)
        ballast.write_bytes(bytes(max(0, usage.f_bavail * usage.f_frsize - nbytes)))
        try:
            yield
        finally:
            ballast.unlink()

    def close(self) -> None:
        if self.is_mounted:
            subprocess.run(["umount", "-l", str(self.place)], check=True)


@contextmanager
def largest_file(nbytes: int) -> Iterator[None]:
    """Let no file of this process grow beyond so many bytes while the block runs."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (nbytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[FullDisk]:
    """A disk of a few megabytes."""
    place = tmp_path / "disk"
    place.mkdir()
    disk = FullDisk(place)
    try:
        yield disk
    finally:
        disk.close()


def fills_up(place: Path, room: Callable[[int], AbstractContextManager[None]], step: int) -> None:
    """With more and more room the write gets further and further; none that counted is lost."""
    graph = init(place / "graph", SCHEMA)
    add(graph, "row 0", "x" * 10_000)
    acknowledged = {"row 0"}
    refusals: dict[str, str] = {}
    for number in range(24):
        name = f"row {number + 1}"
        with room(step * number):
            try:
                add(graph, name, "x" * 10_000)
                acknowledged.add(name)
            except (StorageError, RecoveryRequired) as refused:
                refusals[refused.code] = refused.hint or ""
            assert acknowledged <= set(people(graph))
        # What was left is finished or undone, and the graph can be written again.
        again = open_graph(graph.uri)
        assert acknowledged <= set(people(again))
        add(again, "row 0", "y" * 10_000)
    assert len(refusals) > 0
    helps = ("disk space", "recover", "ulimit -f")
    assert all(any(word in hint for word in helps) for hint in refusals.values()), refusals
    assert len(acknowledged) > 1
    shutil.rmtree(place / "graph")


def test_a_full_disk_refuses_the_write_and_nothing_is_lost(small_disk: FullDisk):
    fills_up(small_disk.place, small_disk.room, 2048)


def fill_up_by_files(directory: str, answer: str) -> None:
    fills_up(Path(directory), largest_file, 1024)
    Path(answer).write_text("true")


def test_files_that_cannot_grow_refuse_the_write_and_nothing_is_lost(tmp_path: Path):
    assert in_child(fill_up_by_files, tmp_path) is True


# --- permission denied ----------------------------------------------------------------------------


def lose_permissions(directory: str, answer: str) -> None:
    """As a user who is not root: root may write everything."""
    if os.getuid() == 0:
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    root = Path(directory) / "graph"
    graph = init(root, SCHEMA)
    add(graph, "before")
    folders = [root, *(path for path in root.rglob("*") if path.is_dir())]
    outcome: dict[str, Any] = {}
    for folder in folders:
        folder.chmod(0o555)
    try:
        add(graph, "refused")
    except OmnigraphError as error:
        outcome["warm"] = said(error)
    try:
        open_graph(root)
    except OmnigraphError as error:
        outcome["open"] = said(error)
    outcome["read"] = people(open_graph(root, mode="read_only"))
    secret = root / "_schema.pg"
    secret.chmod(0o000)
    try:
        people(open_graph(root, mode="read_only"))
    except OmnigraphError as error:
        outcome["unreadable"] = said(error)
    secret.chmod(0o644)
    for folder in folders:
        folder.chmod(0o755)
    add(graph, "after")
    outcome["after"] = people(open_graph(root))
    Path(answer).write_text(json.dumps(outcome))


@pytest.fixture
def common_place() -> Iterator[Path]:
    """A directory that another user can work in, which pytest's own are not."""
    place = Path(tempfile.mkdtemp(prefix="omnigraph-faults-"))
    place.chmod(0o777)
    try:
        yield place
    finally:
        shutil.rmtree(place)


def test_c_sto_038_denied_permission_is_a_typed_error_and_reading_goes_on(common_place: Path):
    outcome = in_child(lose_permissions, common_place)
    for refused in ("warm", "open", "unreadable"):
        kind, message, hint = outcome[refused]
        assert kind in ("StorageError", "StorageFailure")
        assert "permission denied" in message.lower()
        assert str(common_place) in message
        assert "permissions of the directory" in hint
    assert outcome["read"] == ["before"]
    assert outcome["after"] == ["after", "before"]


# --- files that are cut off -----------------------------------------------------------------------


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    """A graph with a branch of its own rows; `Person` was written last on main."""
    graph = init(tmp_path / "graph", SCHEMA)
    add(graph, "ana")
    graph.create_branch("review")
    add(graph, "ben", branch="review")
    graph.mutate(CITY, {"n": "Rome"})
    add(graph, "cleo")
    return graph


def person_table(graph: Graph) -> tuple[Path, int]:
    entry = next(each for each in graph.snapshot().datasets if each.type_name == "Person")
    return Path(graph.uri) / entry.dataset_path, entry.published_dataset_version


def newest_version(dataset: Path) -> Path:
    return min(dataset.glob("_versions/*.manifest"))


def cut(file: Path, share: float) -> bytes:
    content = file.read_bytes()
    file.write_bytes(content[: int(len(content) * share)])
    return content


@pytest.mark.parametrize("share", [0, 0.5, 0.98])
def test_a_truncated_version_of_a_table_is_named_and_concerns_nothing_else(
    graph: Graph, share: float
):
    table, version = person_table(graph)
    file = version_file(str(table), version)
    content = cut(file, share)
    damaged = open_graph(graph.uri)
    for attempt in (lambda: people(damaged), lambda: add(damaged, "dora")):
        with pytest.raises(DamagedFile) as refused:
            attempt()
        assert refused.value.details == {"file": str(file)}
        assert str(file) in refused.value.message
        assert "copy of the graph" in (refused.value.hint or "")
    # The advice says what can still be read: other tables, other branches, older commits.
    assert b"Rome" in b"".join(damaged.export(types=["City"]))
    assert people(damaged, "review") == ["ana", "ben"]
    damaged.mutate(CITY, {"n": "Oslo"})
    add(damaged, "dora", branch="review")
    former = damaged.list_commits()[2].graph_commit_id
    assert b"ana" in b"".join(damaged.export(types=["Person"], snapshot=former))
    # And what puts it right.
    file.write_bytes(content)
    assert people(damaged) == ["ana", "cleo"]
    add(damaged, "dora")
    assert people(open_graph(graph.uri)) == ["ana", "cleo", "dora"]


@pytest.mark.parametrize("share", [0, 0.5])
def test_a_truncated_data_file_is_named(graph: Graph, share: float):
    add(graph, "dora", "x" * 1_000)
    table, _ = person_table(graph)
    file = max(table.glob("data/*.lance"), key=lambda each: each.stat().st_size)
    content = cut(file, share)
    with pytest.raises(DamagedFile) as refused:
        people(open_graph(graph.uri))
    assert refused.value.details == {"file": str(file)}
    assert people(open_graph(graph.uri), "review") == ["ana", "ben"]
    file.write_bytes(content)
    assert people(open_graph(graph.uri)) == ["ana", "cleo", "dora"]


@pytest.mark.parametrize("share", [0, 0.5])
def test_a_data_file_that_a_branch_shares_is_named_by_the_branch_too(graph: Graph, share: float):
    table, _ = person_table(graph)
    shared = min(table.glob("data/*.lance"), key=lambda each: each.stat().st_mtime_ns)
    cut(shared, share)
    with pytest.raises(DamagedFile) as refused:
        people(open_graph(graph.uri), "review")
    assert refused.value.details == {"file": str(shared)}


@pytest.mark.parametrize("share", [0, 0.5])
@pytest.mark.parametrize("mode", ["read_write", "read_only"])
def test_a_truncated_manifest_is_named_and_the_advice_brings_the_graph_back(
    graph: Graph, share: float, mode: Any
):
    file = newest_version(Path(graph.uri) / "__manifest")
    content = cut(file, share)
    with pytest.raises(DamagedFile) as refused:
        open_graph(graph.uri, mode=mode)
    assert refused.value.details == {"file": str(file)}
    assert "move it away" in (refused.value.hint or "")
    file.rename(file.with_suffix(".moved"))
    record = Path(graph.uri) / "__lease/branch/main.json"
    with pytest.raises(DamagedFile, match=r"it is missing") as lost:
        open_graph(graph.uri, mode=mode)
    assert lost.value.details == {"file": str(file)}
    assert "__lease/branch/main.json" in (lost.value.hint or "")
    published = record.read_bytes()
    record.unlink()
    assert people(open_graph(graph.uri, mode="read_only")) == ["ana"]
    assert people(open_graph(graph.uri, mode="read_only"), "review") == ["ana", "ben"]
    file.write_bytes(content)
    record.write_bytes(published)
    assert people(open_graph(graph.uri)) == ["ana", "cleo"]
    add(open_graph(graph.uri), "dora")


def test_a_truncated_manifest_of_a_branch_leaves_main_alone(graph: Graph):
    (tree,) = (Path(graph.uri) / "__manifest/tree").iterdir()
    file = newest_version(tree)
    content = cut(file, 0.5)
    damaged = open_graph(graph.uri)
    for attempt in (lambda: people(damaged, "review"), lambda: add(damaged, "x", branch="review")):
        with pytest.raises(DamagedFile) as refused:
            attempt()
        assert refused.value.details == {"file": str(file)}
    add(damaged, "dora")
    assert people(damaged) == ["ana", "cleo", "dora"]
    file.write_bytes(content)
    assert people(open_graph(graph.uri), "review") == ["ana", "ben"]


def test_a_truncated_version_that_was_never_published_does_not_stop_reading(graph: Graph):
    """What a loss of power can leave with process durability: a version with nothing in it."""
    table, version = person_table(graph)
    file = version_file(str(table), version + 1)
    file.touch()
    damaged = open_graph(graph.uri)
    assert people(damaged) == ["ana", "cleo"]
    with pytest.raises(OmnigraphError) as refused:
        add(damaged, "dora")
    assert str(table.name) in refused.value.message or "node:Person" in refused.value.message
    assert refused.value.hint
    file.unlink()
    add(damaged, "dora")
    assert people(open_graph(graph.uri)) == ["ana", "cleo", "dora"]
