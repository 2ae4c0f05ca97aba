"""Every damaged, missing or foreign file is found, whatever became of it, and nothing else is."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from omnigraph.copies.census import take_census
from omnigraph.errors import DamagedFile, InputError, NotFound, OmnigraphError
from omnigraph.graph import Graph, doctor, init, open_graph, scrub
from omnigraph.model.upkeep import ScrubReport
from tests.support.budgets import budget

SCHEMA = """
node Person { name: String @key  age: I64? @index  bio: String? @index  photo: Blob? }
node City { name: String @key }
edge Knows: Person -> Person { since: I64? }
"""
QUERY = "query q { match { $p: Person } return { $p.name, $p.age, $p.bio } }"


def insert(graph: Graph, name: str, age: int, branch: str = "main") -> None:
    text = f'query q {{ insert Person {{ name: "{name}", age: {age}, bio: "likes {name}" }} }}'
    graph.mutate(text, branch=branch)


def make(root: Path) -> Graph:
    """A graph with every kind of file: indexes, deletions, a branch, a past schema, reviews."""
    graph = init(root, SCHEMA)
    for number, name in enumerate(("ada", "bob", "cyd", "dan")):
        insert(graph, name, number)
    graph.mutate('query q { delete Person where name = "bob" }')
    graph.optimize()
    graph.create_branch("side")
    insert(graph, "eve", 5, "side")
    graph.mutate('query q { update Person set { age: 50 } where name = "ada" }', branch="side")
    graph.apply_schema(SCHEMA.replace("node City {", "node City { // a comment\n size: I64? "))
    insert(graph, "fay", 6)
    graph.reviews.open("side", "main", title="please")
    return graph


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("scrub") / "graph.omni"
    make(root)
    return root


@pytest.fixture
def graph(root: Path) -> Graph:
    return open_graph(root, "read_only")


UNCHECKED = ("__lease", "latest_version_hint.json", ".omnigraph-")
"""Leases and hints change all the time and decide nothing about the content of a graph."""


def files(root: Path) -> list[Path]:
    found = (path for path in sorted(root.rglob("*")) if path.is_file())
    return [path for path in found if not any(part in str(path) for part in UNCHECKED)]


@contextmanager
def changed(file: Path, change: Callable[[bytes], bytes | None]) -> Iterator[None]:
    before = file.read_bytes()
    after = change(before)
    if after is None:
        file.unlink()
    else:
        file.write_bytes(after)
    try:
        yield
    finally:
        file.write_bytes(before)


def flipped(at: int, bit: int) -> Callable[[bytes], bytes]:
    def change(content: bytes) -> bytes:
        changed = bytearray(content)
        changed[at] ^= 1 << bit
        return bytes(changed)

    return change


def named(report: ScrubReport) -> set[str]:
    return {each.file for each in report.findings}


def read_everything(root: Path) -> None:
    """Only typed errors may come of damage; anything else fails the test."""
    with suppress(OmnigraphError):
        graph = open_graph(root, "read_only")
        for branch in ("main", "side"):
            with suppress(OmnigraphError):
                graph.query(QUERY, branch=branch).to_pylist()
        graph.stats()


def test_a_graph_as_it_was_written_is_clean_and_every_file_of_it_has_a_digest(
    root: Path, graph: Graph
) -> None:
    report = graph.scrub()
    assert report.is_clean, report.findings
    assert report.files_undigested == 0
    assert report.files_checked > 60
    assert report.bytes_read > 10_000


def test_c_ver_008_random_byte_flips_are_found_and_never_a_traceback(root: Path) -> None:
    """Files are drawn by their folder first, so that rare kinds are hit as often as data."""
    chance = random.Random(8)
    kinds: dict[str, list[Path]] = {}
    for file in files(root):
        kinds.setdefault(f"{file.relative_to(root).parts[0]}/{file.parent.name[:8]}", []).append(
            file
        )
    for number in range(budget(24, 500)):
        kind = sorted(kinds)[number % len(kinds)]
        file = chance.choice(kinds[kind])
        at, bit = chance.randrange(file.stat().st_size), chance.randrange(8)
        with changed(file, flipped(at, bit)):
            report = scrub(root)
            found = named(report)
            assert file.relative_to(root).as_posix() in found, (file, at, bit, report.findings)
            read_everything(root)
    assert scrub(root).is_clean


@pytest.mark.parametrize("how", ["deleted", "truncated", "swapped"])
def test_c_ver_009_deleted_truncated_and_swapped_files_are_found(
    root: Path, graph: Graph, how: str
) -> None:
    kernel = graph._kernel
    needed = take_census(kernel.store, kernel.lance, kernel.manifest).needed
    chance = random.Random(9)
    groups: dict[tuple[str, str], list[Path]] = {}
    for file in files(root):
        groups.setdefault((file.parent.name[:8], file.suffix), []).append(file)
    for group in groups.values():
        file, other = chance.choice(group), chance.choice(group).read_bytes()
        name = file.relative_to(root).as_posix()
        if how == "swapped" and other == file.read_bytes():
            continue
        changes: dict[str, Callable[[bytes], bytes | None]] = {
            "deleted": lambda _: None,
            "truncated": lambda content: content[: len(content) // 2],
            "swapped": lambda _, other=other: other,  # type: ignore[misc]
        }
        with changed(file, changes[how]):
            report = scrub(root)
            # Of the manifest, only files of the newest version are needed.
            spare = is_spare(name) or (name.startswith("__manifest/") and name not in needed)
            spare = how == "deleted" and spare
            # A list of digests that lost whole lines leaves files unverified.
            spare = spare or (how == "truncated" and name.startswith("__digests/"))
            assert name in named(report) or spare, name
            read_everything(root)


def is_spare(name: str) -> bool:
    """Transactions lie in their version as well, old versions may be cleaned up, and a lost list of
    digests leaves files unverified."""
    return "_transactions/" in name or "_versions/" in name or name.startswith("__digests/")


def test_a_finding_names_the_type_the_commit_and_the_branches_that_show_it(
    root: Path, graph: Graph
) -> None:
    newest = graph.list_commits()[0].graph_commit_id
    handle = graph._opened.reader().handle("node:Person")
    fragment = Path(handle.uri) / "data" / handle.get_fragments()[-1].data_files()[0].path
    with changed(fragment, flipped(10, 0)):
        (finding,) = graph.scrub().findings
        assert (finding.kind, finding.table) == ("damaged", "node:Person")
        assert finding.graph_commit_id == newest
        assert finding.branches == ("main",)
        (finding,) = graph.scrub("main", since=graph.list_commits()[1].graph_commit_id).findings
        assert finding.graph_commit_id == newest
        assert graph.scrub("side").is_clean
        diagnosis = doctor(root, deep=True)
        assert not diagnosis.is_healthy
        assert any(fragment.name in each.subject for each in diagnosis.findings)
    assert graph.scrub(since=newest).is_clean
    with pytest.raises(NotFound, match="no commit"):
        graph.scrub(since="01ARZ3NDEKTSV4RRFFQ69G5FAV")
    with pytest.raises(NotFound, match="no branch"):
        graph.scrub("nowhere")


def test_a_damaged_manifest_fails_the_open_itself_and_is_named(root: Path, graph: Graph) -> None:
    handle = graph._kernel.manifest.main.handle
    names = [file.path for each in handle.get_fragments() for file in each.data_files()]
    for name in names:
        file = root / "__manifest/data" / name
        with changed(file, flipped(file.stat().st_size // 3, 2)):
            with pytest.raises(DamagedFile) as refused:
                open_graph(root, "read_only").query(QUERY)
            assert refused.value.details["file"] == str(file)


def test_an_interrupted_scrub_continues_where_it_stopped(
    root: Path, graph: Graph, tmp_path: Path
) -> None:
    notes = tmp_path / "scrub.txt"
    first = graph.scrub(resume=notes)
    lines = notes.read_text().splitlines(keepends=True)
    notes.write_text("".join(lines[:21]) + lines[21][:5])
    second = graph.scrub(resume=notes)
    assert second.files_resumed == 20
    assert second.files_checked == first.files_checked - 20
    assert graph.scrub(resume=notes).files_checked == 0
    notes.write_text("omnigraph scrub /elsewhere\n")
    with pytest.raises(InputError, match="does not belong"):
        graph.scrub(resume=notes)


def test_scrub_reads_no_faster_than_it_is_told_and_says_how_far_it_is(graph: Graph) -> None:
    seen: list[tuple[int, int]] = []
    report = graph.scrub("main", progress=lambda done, of: seen.append((done, of)))
    assert seen[-1][0] == seen[-1][1] == report.bytes_read
    slow = graph.scrub("main", max_mb_per_second=report.bytes_read / 1e6 / 0.2)
    assert slow.seconds >= 0.15
    with pytest.raises(InputError):
        graph.scrub(max_mb_per_second=0)


def test_files_from_before_digests_are_adopted_once_and_are_checked_from_then_on(
    tmp_path: Path,
) -> None:
    root = tmp_path / "graph.omni"
    graph = init(root, SCHEMA)
    insert(graph, "ada", 1)
    shutil.rmtree(root / "__digests")
    before = graph.scrub()
    assert before.is_clean
    assert before.files_undigested > 3
    adopted = graph.scrub(adopt=True)
    assert adopted.files_adopted == before.files_undigested
    assert scrub(root).files_undigested == 0
    (data, *_) = (root / "__manifest/data").iterdir()
    with changed(data, flipped(100, 3)):
        assert data.relative_to(root).as_posix() in named(scrub(root))
    insert(graph, "bob", 2)
    graph.optimize()
    graph.cleanup(keep=1, confirm=True)
    after = graph.scrub(adopt=True)
    assert after.is_clean
    assert after.files_undigested == 0


def test_c_ver_013_links_and_strangers_are_named_and_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("do not read")
    root = tmp_path / "graph.omni"
    graph = init(root, SCHEMA)
    insert(graph, "ada", 1)
    (table,) = (path.parent.parent for path in (root / "nodes").rglob("data/*.lance"))
    (root / "link").symlink_to(outside)
    (table / "data" / "link.lance").symlink_to(outside / "secret")
    (table / "notes.txt").write_text("mine")
    (root / "stray.bin").write_bytes(b"x")
    report = scrub(root)
    assert {each.kind for each in report.findings} == {"foreign"}
    name = table.relative_to(root).as_posix()
    assert named(report) == {"link", f"{name}/data/link.lance", f"{name}/notes.txt", "stray.bin"}
    (data,) = (path for path in (table / "data").glob("*.lance") if not path.is_symlink())
    content = data.read_bytes()
    data.unlink()
    data.symlink_to(outside / "secret")
    assert data.relative_to(root).as_posix() in named(scrub(root))
    data.unlink()
    data.write_bytes(content)
    assert os.listdir(outside) == ["secret"]  # noqa: PTH208


def test_writers_and_cleanup_beside_a_scrub_are_no_findings(tmp_path: Path) -> None:
    root = tmp_path / "graph.omni"
    graph = init(root, SCHEMA)
    insert(graph, "ada", 1)
    insert(graph, "bob", 2)

    def meanwhile(done: int, of: int) -> None:
        if not meanwhile_done:
            meanwhile_done.append(True)
            insert(graph, "cyd", 3)
            graph.optimize()
            graph.cleanup(keep=1, confirm=True)

    meanwhile_done: list[bool] = []
    report = graph.scrub(progress=meanwhile)
    assert meanwhile_done
    assert report.is_clean, report.findings
