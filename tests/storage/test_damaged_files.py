"""Every file of a small graph is damaged in turn: what is asked of the graph then is answered
rightly, or refused with the name of the file. Nothing else ever happens."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.errors import (
    DamagedFile,
    HistoricalVersionReclaimed,
    NotFound,
    SchemaContractError,
)
from omnigraph.graph import doctor, open_graph
from omnigraph.storage import fragments, transactions
from omnigraph.storage.failures import version_file
from omnigraph.storage.transactions import DatasetRef
from tests.support.budgets import IS_LONG

SCHEMA = """
node Person { name: String @key  bio: String? @index  leaf: Vector(4)? @index }
node City { name: String @key }
edge Lives: Person -> City { since: I32? }
"""
ADD = "query add($n: String) { insert Person { name: $n, bio: $n } }"
CITY = "query add($n: String) { insert City { name: $n } }"
UPDATE = 'query set() { update Person set { bio: "changed" } where name = "p3" }'
DELETE = 'query drop() { delete Person where name = "p9" }'
PEOPLE = "query q() { match { $p: Person } return { $p.name, $p.bio } order { $p.name asc } }"
HOMES = """
query q() { match { $p: Person  $p lives $c } return { $p.name, $c.name } order { $p.name asc } }
"""
WORD = """
query q() {
    match { $p: Person  search($p.bio, "thought") } return { $p.name } order { $p.name asc }
}
"""

Verb = Callable[[og.Graph], Any]


def rows(text: str, **target: Any) -> Verb:
    return lambda graph: graph.query(text, **target).to_pylist()


@dataclass
class Patient:
    """A graph, a copy of it, and what it answers when it is whole."""

    root: Path
    copy: Path
    verbs: dict[str, Verb]
    right: dict[str, Any]

    @property
    def files(self) -> list[Path]:
        found = (each.relative_to(self.copy) for each in self.copy.rglob("*") if each.is_file())
        return sorted(each for each in found if ".omnigraph-" not in each.name)

    def restore(self) -> None:
        transactions._known.clear()
        shutil.rmtree(self.root)
        shutil.copytree(self.copy, self.root)


@pytest.fixture(scope="module")
def patient(tmp_path_factory: pytest.TempPathFactory) -> Patient:
    root = tmp_path_factory.mktemp("damaged") / "graph.omni"
    graph = og.init(root, schema=SCHEMA)
    records: list[dict[str, Any]] = [
        {"type": "Person", "data": {"name": f"p{n}", "bio": f"thought {n}", "leaf": [n, 0, 1, 2]}}
        for n in range(10)
    ]
    records += [{"type": "City", "data": {"name": name}} for name in ("Rome", "Oslo")]
    records.append({"edge": "Lives", "from": "p1", "to": "Rome", "data": {"since": 7}})
    graph.load(data="\n".join(map(json.dumps, records)), mode="append")
    old = graph.list_commits()[0].graph_commit_id
    graph.ensure_indices()
    graph.create_branch("review")
    graph.mutate(ADD, {"n": "r1"}, branch="review")
    graph.mutate(ADD, {"n": "later thought"})
    graph.mutate(DELETE)
    graph.mutate(CITY, {"n": "Bern"})
    verbs: dict[str, Verb] = {
        "head": lambda graph: graph.snapshot().graph_commit_id,
        "people": rows(PEOPLE),
        "homes": rows(HOMES),
        "word": rows(WORD),
        "review": rows(PEOPLE, branch="review"),
        "old": rows(PEOPLE, snapshot=old),
        "old homes": rows(HOMES, snapshot=old),
        "export": lambda graph: sorted(graph.export()),
        "commits": lambda graph: [each.graph_commit_id for each in graph.list_commits()],
    }
    opened = open_graph(root, "read_only")
    if not IS_LONG:
        verbs = {name: verbs[name] for name in ("head", "people", "homes", "word", "review", "old")}
    right = {name: verb(opened) for name, verb in verbs.items()}
    copy = root.with_name("copy")
    shutil.copytree(root, copy)
    return Patient(root, copy, verbs, right)


def delete(file: Path) -> None:
    file.unlink()


def cut(file: Path) -> None:
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 2])


def flip(file: Path) -> None:
    """Change the last bytes, which say where in a file of Lance everything lies.

    Not bytes in the middle: Lance keeps no checksums. A changed byte of a value is another value,
    and one of a length makes Lance ask for more memory than there is, which ends the process.
    """
    content = bytearray(file.read_bytes())
    for at in range(-min(8, len(content)), 0):
        content[at] ^= 0xFF
    file.write_bytes(content)


FOLDERS = ("data", "tree", "_deletions", "_indices", "_refs", "_transactions", "_versions")


def chosen(files: list[Path], turn: int) -> Iterator[Path]:
    """All files in the long run, else one of each kind for one of the three damages.

    The version files of the manifest, which decide what is shown at all, get every damage.
    """
    kinds: dict[tuple[str, ...], list[Path]] = {}
    for file in files:
        top = "table" if file.parts[0] in ("nodes", "edges") else file.parts[0]
        kind = (top, *(part for part in file.parts[1:-1] if part in FOLDERS), file.suffix)
        kinds.setdefault(kind, []).append(file)
    for number, (kind, same) in enumerate(sorted(kinds.items())):
        if IS_LONG:
            yield from same
        elif kind[:2] == ("__manifest", "_versions") or number % 3 == turn:
            yield same[0]


NAMING = (DamagedFile, HistoricalVersionReclaimed, NotFound, SchemaContractError)
"""A version of the past may have been removed by cleanup, which cannot be told from a loss. A
schema that is missing or does not fit is refused as the specification says."""


def outcome(patient: Patient, file: Path, name: str, attempt: Callable[[], Any]) -> str:
    """`right`, or `refused` for a typed error that names the file; anything else fails."""
    try:
        found = attempt()
    except NAMING as error:
        named = f"{error.message} {error.details.get('file')}"
        assert str(file) in named or file.name in named, (file, name, error.message)
        return "refused"
    assert found == patient.right.get(name, found), f"{name} is wrong without {file}"
    return "right"


def open_read_only(root: Path) -> None:
    open_graph(root, "read_only")


def write(root: Path) -> None:
    graph = open_graph(root)
    graph.mutate(ADD, {"n": "new"})
    graph.mutate(ADD, {"n": "new"}, branch="review")
    if IS_LONG:
        graph.mutate(UPDATE)
    names = [row["p.name"] for row in graph.query(PEOPLE).to_pylist()]
    assert "new" in names and "later thought" in names


def opens(root: Path) -> None:
    open_graph(root, "read_only")


@pytest.mark.parametrize("damage", [delete, cut, flip])
def test_a_damaged_file_is_named_or_changes_no_answer(
    patient: Patient, damage: Callable[[Path], None]
) -> None:
    for file in chosen(patient.files, (delete, cut, flip).index(damage)):
        patient.restore()
        damage(patient.root / file)
        outcomes: dict[str, str] = {}
        outcomes["open"] = outcome(patient, file, "open", lambda: opens(patient.root))
        if outcomes["open"] == "right":
            graph = open_graph(patient.root, "read_only")
            for name, verb in patient.verbs.items():
                outcomes[name] = outcome(patient, file, name, partial(verb, graph))
        diagnosis = doctor(patient.root)
        outcomes["write"] = outcome(patient, file, "write", lambda: write(patient.root))
        is_past = all(each != "refused" for name, each in outcomes.items() if "old" not in name)
        if not is_past:
            assert any(file.name in each.message for each in diagnosis.findings), (file, outcomes)


def test_doctor_names_every_damaged_file_and_not_only_the_first(patient: Patient) -> None:
    patient.restore()
    data = [file for file in patient.files if file.parts[0] in ("nodes", "edges")]
    parts = ("/data/", "/_deletions/", "/_indices/")
    lost = [next(file for file in data if part in str(file)) for part in parts]
    lost += [file for file in patient.files if file.match("__manifest/_versions/*.manifest")][:2]
    for file in lost:
        cut(patient.root / file)
    found = doctor(patient.root)
    assert not found.is_healthy
    subjects = {each.subject for each in found.findings if each.code == "damaged"}
    assert {str(file) for file in lost} <= subjects


def test_a_vanished_head_is_noticed_by_an_open_graph_and_by_its_next_writer(
    patient: Patient,
) -> None:
    patient.restore()
    graph = open_graph(patient.root)
    assert graph.query(PEOPLE).to_pylist() == patient.right["people"]
    newest = min((patient.root / "__manifest/_versions").glob("*.manifest"))
    content = newest.read_bytes()
    newest.unlink()
    for attempt in (lambda: graph.query(PEOPLE), lambda: graph.mutate(ADD, {"n": "x"})):
        with pytest.raises(DamagedFile) as refused:
            attempt()
        assert refused.value.details == {"file": str(newest)}
    newest.write_bytes(content)
    graph.mutate(ADD, {"n": "x"})


def test_a_lost_lease_record_costs_nothing_but_the_record(patient: Patient) -> None:
    patient.restore()
    (patient.root / "__lease/branch/main.json").unlink()
    graph = open_graph(patient.root)
    graph.mutate(ADD, {"n": "first"})
    graph.mutate(ADD, {"n": "second"})
    record = json.loads((patient.root / "__lease/branch/main.json").read_bytes())
    assert record["published"] == {"ref": None, "version": 9}


def test_a_graph_without_the_record_of_its_last_publish_opens(patient: Patient) -> None:
    """As graphs are that an older release wrote."""
    patient.restore()
    file = patient.root / "__lease/branch/main.json"
    record = json.loads(file.read_bytes())
    del record["published"]
    file.write_text(json.dumps(record))
    graph = open_graph(patient.root)
    assert graph.query(PEOPLE).to_pylist() == patient.right["people"]
    graph.mutate(ADD, {"n": "more"})
    assert json.loads(file.read_bytes())["published"]["version"] == 8


def test_a_read_that_cleanup_overtakes_is_told_so_and_not_of_damage(patient: Patient) -> None:
    """Cleanup removes the files of a version one after the other, the version file among them."""
    patient.restore()
    kernel = open_graph(patient.root, "read_only")._kernel
    entry = kernel.manifest.main.state.head_snapshot().table("node:Person")
    old = kernel.lance.open(DatasetRef(kernel.table_uri(entry.location)), 2)
    for file in old.get_fragments()[0].data_files():
        (Path(old.uri) / "data" / file.path).unlink()
    removal = threading.Timer(0.1, version_file(old.uri, 2).unlink)
    removal.start()
    with pytest.raises(HistoricalVersionReclaimed):
        fragments.rows_where(old, None, ["id"])
    removal.join()
