"""Loss of power: what was not flushed may be gone, in any combination.

Recovery is as durable as the writes it settles: all it leaves is on disk when it returns.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from omnigraph.effects import requests
from omnigraph.effects.failpoints import armed
from omnigraph.effects.local_disk import configured_durability, files_below
from omnigraph.effects.requests import IoEvent
from omnigraph.errors import DamagedFile, RecoveryRequired
from omnigraph.graph import open_graph
from tests.cost.test_durability import assert_all_flushed, new_files
from tests.crash import judge
from tests.crash.model import shown
from tests.crash.operations import INSERT, OPERATIONS, seeded


@pytest.fixture(autouse=True)
def durable(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("OMNIGRAPH_DURABILITY", "disk")
    configured_durability.cache_clear()
    yield
    configured_durability.cache_clear()


@pytest.mark.parametrize("branch", ["main", "review"])
@pytest.mark.parametrize(
    "point", ["mutation.post_table_commit", "mutation.post_finalize_pre_publisher"]
)
def test_what_a_recovery_leaves_behind_is_on_disk(root: Path, point: str, branch: str) -> None:
    seeded(str(root))
    graph = open_graph(root)
    # The second recovery adds to the audit that the first one made.
    for name in ("first", "second"):
        with armed(f"{point}=error*1"), pytest.raises(RecoveryRequired):
            graph.mutate(INSERT, {"person": name, "city": name}, branch=branch)
        new, events = new_files(root, graph.recover)
        assert_all_flushed(root, new, events)


# --- whatever was not flushed is gone -------------------------------------------------------------

LANCE_PARTS = frozenset(("_versions", "_transactions", "_deletions", "_indices", "_refs", "data"))


def is_lances(file: Path) -> bool:
    """Whether Lance wrote a file; it writes none in two steps, and replaces only its hint."""
    return not LANCE_PARTS.isdisjoint(file.parts) and file.name != "latest_version_hint.json"


@dataclass(frozen=True)
class Moment:
    """The files of a graph at one moment of an operation, and those of Lance that may be lost."""

    contents: dict[Path, bytes]
    unflushed: frozenset[Path]

    def after(self, loss: Loss) -> frozenset[tuple[Path, bytes | None]]:
        """What is left of the files that were not flushed, and all that there were."""
        left = ((file, loss(file, self.contents[file])) for file in self.unflushed)
        return frozenset([*left, *((file, None) for file in self.contents)])

    def cuts_the_publish(self, loss: Loss) -> bool:
        """Whether it leaves a part of the newest version of the manifest."""
        cut = (file for file, left in self.after(loss) if left not in (None, self.contents[file]))
        return any(file.parts[0] == "__manifest" and "_versions" in file.parts for file in cut)

    def lay_out(self, root: Path, loss: Loss) -> None:
        """The graph as it may be after the power is back."""
        shutil.rmtree(root)
        for file, content in self.contents.items():
            left = loss(file, content) if file in self.unflushed else content
            if left is not None:
                (root / file).parent.mkdir(parents=True, exist_ok=True)
                (root / file).write_bytes(left)


Loss = Callable[[Path, bytes], bytes | None]
"""What becomes of a file that was not flushed; None if it is gone."""

LOSSES: dict[str, Loss] = {
    "all of it": lambda file, content: None,
    "the ends": lambda file, content: content[: len(content) // 2],
    "data": lambda file, content: content if file.parent.name.startswith("_") else None,
    "all but versions": lambda file, content: content if "_versions" in file.parts else None,
}


class Photographer:
    """Takes the place of a measurement, and looks at the graph with every request."""

    def __init__(self, root: Path) -> None:
        self.moments: list[Moment] = []
        self._seen: set[object] = set()
        self._root = root
        self._before = {file: file.stat().st_ino for file in files_below(root)}
        self._flushed: set[Path] = set()
        self._directories: set[Path] = set()
        self._guard = threading.Lock()

    def get(self) -> Photographer:
        return self

    def add(self, event: IoEvent, n: int, round_trips: int) -> None:
        with self._guard:
            place = Path(event.target)
            if event.verb == "flush_file":
                self._flushed.add(place)
            elif event.verb == "flush_directory":
                # Entries count once their directory was flushed behind them.
                self._directories.update(f for f in self._flushed if f.parent == place)
            self._look()

    def _look(self) -> None:
        there = {f: f.stat().st_ino for f in files_below(self._root) if "lock-" not in f.name}
        new = {file for file, inode in there.items() if self._before.get(file) != inode}
        unflushed = {file for file in new if is_lances(file)} - self._directories
        if unflushed:
            key = frozenset(new), frozenset(unflushed)
            if key not in self._seen:
                self._seen.add(key)
                near = {file.relative_to(self._root): file.read_bytes() for file in there}
                lost = frozenset(file.relative_to(self._root) for file in unflushed)
                self.moments.append(Moment(near, lost))


QUICK = ("update",)
SLOW = ("group", "first-touch")
LONG = ("insert", "delete", "append", "merge", "overwrite")
"""Their files are flushed, committed and published by the same steps as those of an update."""
KINDS = [
    *QUICK,
    *(pytest.param(kind, marks=pytest.mark.slow) for kind in SLOW),
    *(pytest.param(kind, marks=[pytest.mark.slow, pytest.mark.long]) for kind in LONG),
]


@pytest.mark.parametrize("kind", KINDS)
def test_c_sto_050_loss_of_power_at_any_moment_leaves_the_old_graph_or_the_new_one(
    root: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = seeded(str(root))
    new = old.copy()
    OPERATIONS[kind].apply(new)
    camera = Photographer(root)
    with monkeypatch.context() as patched:
        patched.setattr(requests, "current_meter", camera)
        OPERATIONS[kind].run(str(root))
    tried = set()
    for moment in camera.moments:
        for name, loss in LOSSES.items():
            if (left := moment.after(loss)) in tried:
                continue
            tried.add(left)
            moment.lay_out(root, loss)
            print(name, *sorted(map(str, moment.unflushed)), sep="\n")  # shown if it fails
            if moment.cuts_the_publish(loss):
                # Nobody knows whether it was acknowledged: a person decides.
                with pytest.raises(DamagedFile, match="take"):
                    open_graph(root)
                continue
            graph = open_graph(root)
            judge.require_settled(graph)
            found = shown(graph)
            assert found in (old, new)
            judge.require_writable(graph, found)
    assert len(tried) > 10
