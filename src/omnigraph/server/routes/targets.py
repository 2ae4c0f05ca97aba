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


# --- the query string -----------------------------------------------------------------------------


def number_parameter(call: Call, name: str) -> int | None:
    """A whole number of the query string."""
    text = call.parameter(name)
    if text is None:
        return None
    if not text.isascii() or not text.isdecimal() or len(text) > 18:
        raise InputError(f"`{name}` is not a number", hint="leave it out for the default")
    return int(text)


def required_parameter(call: Call, name: str) -> str:
    """A parameter that must be given."""
    value = (call.parameter(name) or "").strip()
    if not value:
        raise InputError(f"parameter `{name}` is missing")
    return value


def flag_parameter(call: Call, name: str) -> bool:
    """A parameter that is `true` or `false`; false when it is left out."""
    value = call.parameter(name) or "false"
    if value not in ("true", "false"):
        raise InputError(f"`{name}` is true or false, not '{value}'")
    return value == "true"
