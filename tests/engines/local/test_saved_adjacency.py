"""Adjacency that `optimize` saves changes no answer, whatever became of it or of the graph."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import omnigraph as og
from omnigraph.effects.requests import measure
from omnigraph.engines.local import tables
from omnigraph.engines.local.engine import LocalEngine
from omnigraph.engines.local.saved import Outcome
from omnigraph.graph import doctor
from omnigraph.storage import saved_adjacency
from omnigraph.storage.layout import ADJACENCY
from omnigraph.storage.saved_adjacency import AdjacencyFiles
from tests.engines.local.graphs import load, write
from tests.support.budgets import FEW
from tests.support.templates import copy_of

SCHEMA = """
interface Message { text: String }
node Person { name: String @key  age: I32? }
node Post implements Message { text: String @key }
node Comment implements Message { text: String @key }
edge Knows: Person -> Person { since: I32?  weight: F64  note: String? }
edge Likes: Person -> Message { at: I32 }
edge Wrote: Person -> Post
"""
PEOPLE = 12
QUESTIONS = [
    "match { $a $e:knows $b } return { $a.age, sum($e.weight) as w, avg($e.since) as s }",
    "match { $a $e:knows $b  $e.weight > 3 } return { count(*) as n }",
    "match { $a knows $b  $b knows $c } return { count(*) as n }",
    "match { $a $e:knows $b } return { $a.name as a, $b.age as b, $e.note as n } order { a, b, n }",
    "match { $a <knows> $b } return { $a.name as a, $b.name as b } order { a, b }",
    'match { $a: Person { name: "p1" }  $a knows{1,3} $b } return { $b.name as b } order { b }',
    "match { $a likes $m } return { $a.name as a, $m.text as t } order { a, t }",
    "match { $m: Message  $a $l:likes $m } return { $m.text as m, max($l.at) as n } order { m }",
    "match { $a wrote $p  $b likes $p } return { $a.name as a, $b.name as b } order { a, b }",
]


@pytest.fixture(autouse=True)
def small_tables_are_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saved_adjacency, "EDGES_MIN", 1)
    monkeypatch.setattr(tables, "EDGES_ALWAYS_SORTED", 0)


def knows(a: int, b: int, weight: float, **data: Any) -> dict[str, Any]:
    return {"edge": "Knows", "from": f"p{a}", "to": f"p{b}", "data": {"weight": weight, **data}}


def _filled(root: Path) -> None:
    graph = og.init(root, schema=SCHEMA)
    people = [{"type": "Person", "data": {"name": f"p{n}", "age": n}} for n in range(PEOPLE)]
    posts = [{"type": "Post", "data": {"text": f"t{n}"}} for n in range(4)]
    # A post and a comment have the same key.
    comments = [{"type": "Comment", "data": {"text": f"t{n}"}} for n in range(2, 5)]
    edges = [
        knows(
            n % PEOPLE, n * 7 % PEOPLE, n / 4, since=None if n % 5 == 0 else 2000 + n, note=f"n{n}"
        )
        for n in range(40)
    ]
    likes = [
        {"edge": "Likes", "from": f"p{n}", "to": f"t{number}", "to_type": kind, "data": {"at": n}}
        for n in range(PEOPLE)
        for kind, number in (("Post", n % 4), ("Comment", 2 + n % 3))
    ]
    wrote = [
        {"edge": "Wrote", "from": f"p{n}", "to": f"t{n % 4}", "data": {}} for n in range(PEOPLE)
    ]
    load(graph, *people, *posts, *comments, *edges, *likes, *wrote)
    graph.optimize()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    copy_of(_filled, tmp_path / "graph.omni")
    return tmp_path / "graph.omni"


def answers(root: Path, branch: str | None = None) -> list[Any]:
    """What a process with nothing in memory answers."""
    graph = og.open(root)
    return [ask(graph, text, branch) for text in QUESTIONS]


def ask(graph: og.Graph, text: str, branch: str | None = None) -> list[str]:
    rows = graph.query(f"query q() {{ {text} }}", branch=branch).to_pylist()
    return sorted(map(repr, rows)) if "order" not in text else list(map(repr, rows))


def outcomes(graph: og.Graph) -> Mapping[Outcome, int]:
    engine = graph._opened.engine("local")
    assert isinstance(engine, LocalEngine)
    return engine.memory.saved.outcomes


def without_saved(root: Path, branch: str | None = None) -> list[Any]:
    """What is answered from the tables alone."""
    aside = root.parent / "aside"
    (root / ADJACENCY).rename(aside)
    try:
        return answers(root, branch)
    finally:
        aside.rename(root / ADJACENCY)


def saved_files(root: Path) -> list[Path]:
    return sorted(path for path in (root / ADJACENCY).rglob("*") if path.is_file())


def test_a_fresh_process_answers_from_it_and_reads_no_end_of_an_edge(root: Path):
    graph = og.open(root)
    ask(graph, "match { $p: Person } return { count(*) as n }")
    for text in QUESTIONS[:3]:
        with measure() as meter:
            found = ask(graph, text)
        location = graph._opened.reader().snapshot.table("edge:Knows").location
        events = meter.report().events
        scans = [e for e in events if e.verb == "scan" and location in e.target]
        assert found and not scans, events
    assert outcomes(graph)["used"] > 0
    assert not outcomes(graph)["stale"] + outcomes(graph)["damaged"]
    assert answers(root) == without_saved(root)


def test_each_question_alone_and_after_others(root: Path):
    wanted = without_saved(root)
    for first in range(len(QUESTIONS)):
        graph = og.open(root)
        assert ask(graph, QUESTIONS[first]) == wanted[first]
        assert [ask(graph, text) for text in QUESTIONS] == wanted


def test_nodes_that_were_read_in_another_order(root: Path):
    graph = og.open(root)
    engine = graph._opened.engine("local")
    assert isinstance(engine, LocalEngine)
    location = graph._opened.reader().snapshot.table("node:Person").location
    for name in ("p7", "p3", "nobody"):
        engine.memory.space(location).intern(og_strings(name))
    assert [ask(graph, text) for text in QUESTIONS] == without_saved(root)
    assert outcomes(graph)["used"] > 0


def og_strings(*texts: str) -> Any:
    import pyarrow as pa

    return pa.array(texts, pa.string())


CHANGES = [
    'insert Person { name: "new", age: 1 }',
    'insert Knows { from: "p1", to: "p2", weight: 9.5, note: "late" }',
    'insert Knows { from: "p1", to: "p1", weight: 0.5 }',
    'insert Knows { from: "p11", to: "p0", weight: 2.5, since: 1 }',
    'insert Wrote { from: "p5", to: "t0" }',
    'delete Knows where from = "p3"',
    "delete Knows where weight = 2.5",
    'delete Person where name = "p4"',
    'update Person set { age: 99 } where name = "p2"',
    'delete Post where text = "t1"',
    "optimize",
    "branch",
    "schema",
]


@FEW
@given(st.lists(st.sampled_from(CHANGES), min_size=1, max_size=6))
def test_whatever_happens_to_the_graph_afterwards(
    tmp_path_factory: pytest.TempPathFactory, changes: list[str]
):
    root = tmp_path_factory.mktemp("saved") / "graph.omni"
    copy_of(_filled, root)
    graph, branch = og.open(root), None
    for change in changes:
        match change:
            case "optimize":
                graph.optimize()
            case "branch" if branch is None:
                graph.create_branch("side")
                branch = "side"
            case "branch":
                branch = None if branch == "side" else branch
            case "schema":
                source = graph.schema_source
                if "mood" not in source and not graph.list_branches()[1:]:
                    graph.apply_schema(source.replace("age: I32?", "age: I32?  mood: String?"))
            case _:
                graph.mutate(f"query q() {{ {change} }}", branch=branch)
    for each in {None, branch}:
        wanted = without_saved(root, each)
        assert answers(root, each) == wanted
        # The process that made the changes, with what it had read before.
        assert [ask(graph, text, each) for text in QUESTIONS] == wanted


def test_a_later_version_goes_on_from_it(root: Path):
    graph = og.open(root)
    write(graph, 'insert Knows { from: "p1", to: "p2", weight: 9.5 }')
    graph = og.open(root)
    text = "match { $a knows $b  $b knows $c } return { count(*) as n }"
    assert ask(graph, text) == ask_without(root, text)
    assert outcomes(graph)["used"] and not outcomes(graph)["stale"]


def ask_without(root: Path, text: str) -> Any:
    return without_saved(root)[QUESTIONS.index(text)]


def damaged(change: Callable[[bytes], bytes | None]) -> Callable[[Path], None]:
    def apply(path: Path) -> None:
        content = change(path.read_bytes())
        if content is None:
            path.unlink()
        else:
            path.write_bytes(content)

    return apply


DAMAGE = {
    "cut": damaged(lambda content: content[: len(content) // 2]),
    "flipped": damaged(lambda content: bytes([content[0] ^ 1]) + content[1:] if content else b"x"),
    "emptied": damaged(lambda content: b"" if content else b"1"),
    "removed": damaged(lambda content: None),
}


@pytest.mark.parametrize("how", list(DAMAGE))
def test_a_damaged_file_is_counted_and_changes_no_answer(root: Path, how: str):
    wanted = without_saved(root)
    for number in range(len(saved_files(root))):
        file = saved_files(root)[number]
        before = file.read_bytes()
        DAMAGE[how](file)
        graph = og.open(root)
        assert [ask(graph, text) for text in QUESTIONS] == wanted, file
        counts = outcomes(graph)
        is_state = file.name == "state.json"
        if not (is_state and how == "removed"):
            assert counts["damaged"] or not is_state, (file, counts)
        file.write_bytes(before)


def test_files_of_another_graph_are_not_used(root: Path, tmp_path: Path):
    other = tmp_path / "other.omni"
    graph = og.init(other, schema=SCHEMA)
    load(graph, *({"type": "Person", "data": {"name": f"p{n}"}} for n in range(PEOPLE)))
    load(graph, *(knows(n % PEOPLE, 1, 1.0) for n in range(40)))
    graph.optimize()
    for folder in (root / ADJACENCY / "edges").iterdir():
        shutil.rmtree(folder)
        own = other / ADJACENCY / "edges" / folder.name
        if own.exists():
            shutil.copytree(own, folder)
    graph = og.open(root)
    assert [ask(graph, text) for text in QUESTIONS] == without_saved(root)
    assert outcomes(graph)["stale"] and not outcomes(graph)["used"]


def test_an_interrupted_run_leaves_what_was_there_and_the_next_one_mends_it(
    root: Path, monkeypatch: pytest.MonkeyPatch
):
    graph = og.open(root)
    load(graph, *(knows(n % PEOPLE, 3, 1.0) for n in range(40)))
    wanted = without_saved(root)
    before = {path: path.read_bytes() for path in saved_files(root)}

    def dies(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(AdjacencyFiles, "publish", dies)
        with pytest.raises(KeyboardInterrupt):
            graph.optimize()
    assert {path: path.read_bytes() for path in before} == before
    assert len(saved_files(root)) > len(before)
    assert answers(root) == wanted
    assert any(table.adjacency_saved for table in og.open(root).optimize().tables)
    assert answers(root) == wanted == without_saved(root)
    left = saved_files(root)
    assert not any(table.adjacency_saved for table in og.open(root).optimize().tables)
    assert saved_files(root) == left


def test_what_is_damaged_is_found_and_made_anew(root: Path):
    assert not og.open(root).scrub().findings
    for name, problem in (("state.json", "cannot be read"), ("", "not what was written")):
        file = next(each for each in saved_files(root) if name in ("", each.name))
        file.write_bytes(file.read_bytes()[:-3] + b"abc")
        (finding,) = og.open(root).scrub().findings
        assert finding.kind == "damaged" and problem in finding.problem
        assert finding.file == file.relative_to(root).as_posix()
        (told,) = [each for each in doctor(root, deep=True).findings if "adjacency" in str(each)]
        assert str(told.command).startswith("omnigraph optimize")
        og.open(root).optimize()
        assert not og.open(root).scrub().findings
    (root / ADJACENCY / "notes.txt").write_text("mine")
    (finding,) = og.open(root).scrub().findings
    assert finding.kind == "foreign"


def test_cleanup_removes_what_fits_no_table_and_keeps_the_rest(root: Path):
    graph = og.open(root)
    kept = saved_files(root)
    assert [row for row in graph.cleanup(keep=1).tables if row.type_key == ADJACENCY] == []
    stray = kept[0].parent / ("0" * 32)
    stray.write_bytes(b"of a run that died")
    gone = root / ADJACENCY / "edges" / "gone-1"
    shutil.copytree(kept[0].parent, gone)
    (row,) = [
        row for row in graph.cleanup(keep=1, confirm=True).tables if row.type_key == ADJACENCY
    ]
    assert row.old_versions_removed > 1
    assert saved_files(root) == kept


def test_a_copy_of_the_graph_goes_without_it(root: Path, tmp_path: Path):
    og.open(root).clone(tmp_path / "copy.omni")
    assert not (tmp_path / "copy.omni" / ADJACENCY).exists()
    assert answers(tmp_path / "copy.omni") == answers(root)


def test_small_tables_are_neither_saved_nor_looked_for(root: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(saved_adjacency, "EDGES_MIN", 1_000)
    monkeypatch.setattr(tables, "EDGES_ALWAYS_SORTED", 1_000)
    shutil.rmtree(root / ADJACENCY)
    graph = og.open(root)
    assert not any(table.adjacency_saved for table in graph.optimize().tables)
    assert not (root / ADJACENCY).exists()
    for text in QUESTIONS:
        ask(graph, text)
    assert not outcomes(graph)
