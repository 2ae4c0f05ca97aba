"""What a read is about, and who may read it: a branch, or the branch a snapshot belongs to."""

from __future__ import annotations

from omnigraph.errors import InputError, NotFound
from omnigraph.graph import Graph
from omnigraph.model.ids import MAIN_BRANCH, normalize_commit_id
from omnigraph.policy import Action
from omnigraph.server.call import Call


async def authorize_read(call: Call, branch: str | None, snapshot: str | None) -> str | None:
    """Let policy decide about a read; returns the snapshot in its canonical form.

    A snapshot is as readable as the branch it is on, or as main when there is no such commit: the
    answer to a stranger must not tell which commits exist.
    """
    if snapshot is None:
        call.authorize(Action.READ, branch or MAIN_BRANCH)
        return None
    wanted = canonical_commit_id(snapshot)
    found = await call.services.pool.read(authored_branch, call.served.graph, wanted)
    call.authorize(Action.READ, found or MAIN_BRANCH)
    return wanted


def authored_branch(graph: Graph, commit_id: str) -> str | None:
    """The branch a commit landed on; None if there is no such commit."""
    try:
        return graph.show_commit(commit_id).graph_branch or MAIN_BRANCH
    except NotFound:
        return None


def canonical_commit_id(text: str) -> str:
    """A commit id as the engine writes it; what is none stays as it is, and is never found."""
    try:
        return normalize_commit_id(text)
    except InputError:
        return text
