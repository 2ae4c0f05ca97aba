"""Who acts, an id and the claims that a token says about it; and the actions of rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal, TypeAlias

ClaimValue: TypeAlias = str | int | float | bool | tuple[str, ...]
"""What a claim may be. Others of a token, such as objects, are left out of an identity."""


@dataclass(frozen=True, slots=True)
class Identity:
    """An actor as rules see it. Equal ones see the same, so it is a key of caches.

    >>> Identity.of("act-ana", {"region": "eu", "roles": ["agent"], "other": {}}).claims
    (('region', 'eu'), ('roles', ('agent',)))
    """

    id: str
    claims: tuple[tuple[str, ClaimValue], ...] = ()
    """By name, in the order of the names."""
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # A query looks it up in several caches, and claims may be long.
        object.__setattr__(self, "_hash", hash((self.id, self.claims)))

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[Any, ...]:
        """For another process, where texts have other hashes."""
        return Identity, (self.id, self.claims)

    @classmethod
    def of(cls, actor: str, claims: Mapping[str, Any]) -> Identity:
        """The identity of an actor with the claims of a token; what no rule can read is left out.

        Lists keep their texts.
        """
        known = {name: _claim(value) for name, value in sorted(claims.items())}
        return cls(
            actor, tuple((name, value) for name, value in known.items() if value is not None)
        )

    def claim(self, name: str) -> ClaimValue | None:
        """The value of a claim; None without it."""
        return next((value for known, value in self.claims if known == name), None)


Actor: TypeAlias = str | Identity
"""Who acts: an id alone has no claims."""


def identity_of(actor: Actor) -> Identity:
    """The identity of an actor."""
    return Identity(actor) if isinstance(actor, str) else actor


def _claim(value: Any) -> ClaimValue | None:
    if isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, Sequence) and not isinstance(value, bytes):
        return tuple(each for each in value if isinstance(each, str))
    return None


@dataclass(frozen=True, slots=True)
class ClaimTest:
    """Members of a group by a claim of their token, instead of a list of ids."""

    claim: str
    value: str

    def holds(self, identity: Identity) -> bool:
        """Whether the claim is the value, or a list with it."""
        found = identity.claim(self.claim)
        return self.value in found if isinstance(found, tuple) else found == self.value


# --- actions --------------------------------------------------------------------------------------


PolicyKind = Literal["graph", "server"]
"""What a bundle decides about: the data of one graph, or the list of graphs of a server."""


class Action(StrEnum):
    """An action that rules can grant."""

    READ = "read"
    EXPORT = "export"
    CHANGE = "change"
    SCHEMA_APPLY = "schema_apply"
    BRANCH_CREATE = "branch_create"
    BRANCH_DELETE = "branch_delete"
    BRANCH_MERGE = "branch_merge"
    TAG_CREATE = "tag_create"
    TAG_DELETE = "tag_delete"
    INVOKE_QUERY = "invoke_query"
    ADMIN = "admin"
    """Reserved: bundles may grant it, but no operation requires it yet."""
    CHECK_REPORT = "check_report"
    """Version 2: telling how a check of a change request went."""
    MAINTAIN = "maintain"
    """Version 2: upkeep of the storage."""
    GRAPH_LIST = "graph_list"

    @property
    def kind(self) -> PolicyKind:
        """The kind of bundle that decides it."""
        return "server" if self is Action.GRAPH_LIST else "graph"
