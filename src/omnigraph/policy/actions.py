"""What can be allowed: the closed list of actions, and what each is decided with."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

PolicyKind = Literal["graph", "server"]
"""What a bundle is about: one graph's data, or the server's list of graphs."""

KINDS: tuple[PolicyKind, ...] = ("graph", "server")


class Action(StrEnum):
    """One thing an actor may be allowed to do."""

    READ = "read"
    EXPORT = "export"
    CHANGE = "change"
    SCHEMA_APPLY = "schema_apply"
    BRANCH_CREATE = "branch_create"
    BRANCH_DELETE = "branch_delete"
    BRANCH_MERGE = "branch_merge"
    INVOKE_QUERY = "invoke_query"
    ADMIN = "admin"
    """Reserved: bundles may grant it, and nothing asks for it yet."""
    GRAPH_LIST = "graph_list"

    @property
    def kind(self) -> PolicyKind:
        """The kind of bundle that decides it."""
        return "server" if self is Action.GRAPH_LIST else "graph"


SCOPE_KEYS: dict[str, frozenset[Action]] = {
    "branch_scope": frozenset({Action.READ, Action.EXPORT, Action.CHANGE}),
    "target_branch_scope": frozenset(
        {Action.SCHEMA_APPLY, Action.BRANCH_CREATE, Action.BRANCH_DELETE, Action.BRANCH_MERGE}
    ),
}
"""The key of a rule that limits it to some branches → the actions it is for."""


class Scope(StrEnum):
    """Which branches a rule with a scope is about."""

    ANY = "any"
    PROTECTED = "protected"
    UNPROTECTED = "unprotected"
