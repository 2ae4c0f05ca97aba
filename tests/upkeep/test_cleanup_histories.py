"""Random histories of branches, writes, deletes and upkeep, cleaned up again and again.

Whatever happened before: every live branch shows what was written to it and takes further writes,
every commit whose versions are all there reads as it did when it was made, and every other one is
refused by name.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.branching.branches import delete_branch
from omnigraph.effects.failpoints import armed
from omnigraph.errors import HistoricalVersionReclaimed
from omnigraph.graph import open_graph
from omnigraph.storage.transactions import DatasetRef
from tests.support.budgets import budget

SCHEMA = """
node Memo { code: String @key  size: I32? @index }
node Label { name: String @key }
"""
ADD = "query add($code: String) { insert Memo { code: $code, size: 1 } }"
DROP = "query drop($code: String) { delete Memo where code = $code }"
SIZE = "query size($n: I32) { update Memo set { size: $n } where size >= 0 }"
LABEL = "query add($name: String) { insert Label { name: $name } }"
STEPS = 40

Contents = dict[str, int | None]


@dataclass
class Story:
    """A graph, and what it should show."""

    graph: og.Graph
    dice: random.Random
    branches: dict[str, Contents] = field(default_factory=lambda: {"main": {}})
    parents: dict[str, str] = field(default_factory=dict)
    commits: dict[str, Contents] = field(default_factory=dict)
    """What each commit showed, by id."""
    made: int = 0

    def write(self) -> None:
        """One write to some branch."""
        branch = self.dice.choice(sorted(self.branches))
        contents = self.branches[branch]
        self.made += 1
        match self.dice.randrange(5):
            case 0 if contents:
                code = self.dice.choice(sorted(contents))
                self.graph.mutate(DROP, {"code": code}, branch=branch)
                del contents[code]
            case 1 if contents:
                self.graph.mutate(SIZE, {"n": self.made}, branch=branch)
                contents |= dict.fromkeys(contents, self.made)
            case 2:
                self.graph.mutate(LABEL, {"name": f"l{self.made}"}, branch=branch)
            case _:
                self.graph.mutate(ADD, {"code": f"m{self.made}"}, branch=branch)
                contents[f"m{self.made}"] = 1
        self.note(branch)

    def note(self, branch: str) -> None:
        """Remember what the newest commit of a branch shows."""
        newest = self.graph.list_commits(branch)[0].graph_commit_id
        self.commits[newest] = dict(self.branches[branch])

    def fork(self) -> None:
        """A new branch of some other."""
        source = self.dice.choice(sorted(self.branches))
        self.made += 1
        name = f"b{self.made}"
        self.graph.create_branch(name, source)
        self.branches[name] = dict(self.branches[source])
        self.parents[name] = source

    def forget(self) -> None:
        """Delete a branch no other depends on; sometimes nothing of it is reclaimed."""
        leaves = sorted(self.branches.keys() - {"main"} - set(self.parents.values()))
        if not leaves:
            return
        name = self.dice.choice(leaves)
        if self.dice.random() < 0.5:
            self.graph.delete_branch(name)
        else:
            with armed("branch_delete.before_table_cleanup=error"):
                delete_branch(self.graph._kernel, name)
        del self.branches[name], self.parents[name]

    def keep_up(self) -> None:
        """Optimize main, or index some branch."""
        if self.dice.random() < 0.5:
            self.graph.optimize()
            self.note("main")
        else:
            branch = self.dice.choice(sorted(self.branches))
            self.graph.ensure_indices(branch)
            self.note(branch)

    def clean(self, keep: int) -> None:
        """Clean up, and look at everything."""
        receipt = self.graph.cleanup(keep=keep, confirm=True)
        assert not receipt.has_errors, receipt
        fresh = open_graph(self.graph.uri)
        for branch, expected in self.branches.items():
            assert shown(fresh, branch=branch) == expected, branch
            self.look_back(fresh, branch)
        again = self.graph.cleanup(keep=keep, confirm=True)
        assert all(each.is_idle for each in again.tables), again

    def look_back(self, fresh: og.Graph, branch: str) -> None:
        """Read every commit of a branch."""
        kernel = fresh._kernel
        state = kernel.manifest.refreshed(branch).state
        for commit_id, expected in self.commits.items():
            if commit_id not in state.commits:
                continue
            entry = state.snapshot_at(commit_id).table("node:Memo")
            where = DatasetRef(kernel.table_uri(entry.location), entry.ref)
            there = {each["version"] for each in kernel.lance.open(where).versions()}
            if entry.version in there:
                assert shown(fresh, branch=branch, snapshot=commit_id) == expected
            else:
                with pytest.raises(HistoricalVersionReclaimed):
                    shown(fresh, branch=branch, snapshot=commit_id)


def shown(graph: og.Graph, *, branch: str, snapshot: str | None = None) -> Contents:
    """The memos of a branch, or of one of its commits."""
    lines = b"".join(graph.export(branch=branch, snapshot=snapshot, types=["Memo"])).splitlines()
    records = [json.loads(line)["data"] for line in lines]
    return {each["code"]: each.get("size") for each in records}


@pytest.mark.parametrize("seed", range(budget(3, 12)))
def test_every_live_branch_and_every_kept_version_survives(tmp_path: Path, seed: int) -> None:
    story = Story(og.init(tmp_path / "graph.omni", schema=SCHEMA), random.Random(seed))
    for _ in range(STEPS):
        match story.dice.randrange(20):
            case 0 | 1 | 2:
                story.fork()
            case 3 | 4:
                story.forget()
            case 5:
                story.keep_up()
            case 6 | 7:
                story.clean(keep=story.dice.choice([0, 1, 2, 5]))
            case 8:
                story.graph = open_graph(story.graph.uri)
            case _:
                story.write()
    story.clean(keep=1)
    story.clean(keep=0)
    for branch in sorted(story.branches):
        story.graph.mutate(ADD, {"code": "last"}, branch=branch)
        story.branches[branch]["last"] = 1
    fresh = open_graph(story.graph.uri)
    for branch, expected in story.branches.items():
        assert shown(fresh, branch=branch) == expected


def test_a_history_without_branches_shrinks_to_its_newest_version(tmp_path: Path) -> None:
    story = Story(og.init(tmp_path / "graph.omni", schema=SCHEMA), random.Random(99))
    for _ in range(STEPS):
        story.write()
    story.clean(keep=0)
    fresh = open_graph(story.graph.uri)
    head = fresh._kernel.manifest.main.refresh().head_snapshot().table("node:Memo").version
    state = fresh._kernel.manifest.main.state
    older = [
        commit.commit_id
        for commit in state.lineage()
        if state.snapshot_at(commit.commit_id).table("node:Memo").version != head
    ]
    assert len(older) > STEPS / 2
    for commit_id in older:
        with pytest.raises(HistoricalVersionReclaimed):
            shown(fresh, branch="main", snapshot=commit_id)
