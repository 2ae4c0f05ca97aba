"""Identities: an actor id and the claims of its token; and the actions of rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from enum import StrEnum
from typing import Any, Literal, TypeAlias

from omnigraph.model.records import dataclass

ClaimValue: TypeAlias = str | int | float | bool | tuple[str, ...]
"""Supported types of claims. Other claims of a token, such as objects, are ignored."""


@dataclass(frozen=True, slots=True)
class Identity:
    """An actor with its claims. Equal identities have equal rights, so it is a key of caches.

    >>> Identity.of("act-ana", {"region": "eu", "roles": ["agent"], "other": {}}).claims
    (('region', 'eu'), ('roles', ('agent',)))
    """

    id: str
    claims: tuple[tuple[str, ClaimValue], ...] = ()
    """Sorted by name."""
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # Cached: a query uses it as a key several times, and claims may be long.
        object.__setattr__(self, "_hash", hash((self.id, self.claims)))

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[Any, ...]:
        """Recompute the hash in another process, where texts have other hashes."""
        return Identity, (self.id, self.claims)

    @classmethod
    def of(cls, actor: str, claims: Mapping[str, Any]) -> Identity:
        """The identity of an actor with the claims of a token; unsupported types are left out.

        Of lists, only the texts are kept.
        """
        known = {name: _claim(value) for name, value in sorted(claims.items())}
        return cls(
            actor, tuple((name, value) for name, value in known.items() if value is not None)
        )

    def claim(self, name: str) -> ClaimValue | None:
        """The value of a claim; None if absent."""
        return next((value for known, value in self.claims if known == name), None)


Actor: TypeAlias = str | Identity
"""An id, which has no claims, or an identity."""


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
    """Determines members of a group by a claim of their token, instead of a list of ids."""

    claim: str
    value: str

    def holds(self, identity: Identity) -> bool:
        """Whether the claim equals the value, or is a list that contains it."""
        found = identity.claim(self.claim)
        return self.value in found if isinstance(found, tuple) else found == self.value


# --- actions --------------------------------------------------------------------------------------


PolicyKind = Literal["graph", "server"]
"""The scope of a bundle: one graph, or the server with its list of graphs."""


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
    """Reserved: bundles may grant it, but no operation requires it."""
    CHECK_REPORT = "check_report"
    """Since version 2: reporting the result of a check of a change request."""
    MAINTAIN = "maintain"
    """Since version 2: upkeep of the storage."""
    GRAPH_LIST = "graph_list"

    @property
    def kind(self) -> PolicyKind:
        """The kind of bundle that decides it."""
        return "server" if self is Action.GRAPH_LIST else "graph"
