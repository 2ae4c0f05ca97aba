"""Identifiers as values: ULIDs, commit ids, table keys, branch names and actor ids.

Everything here only reads and checks texts; new ids are minted in `effects`.
"""

from __future__ import annotations

import re
from typing import Literal

from omnigraph.errors import AlreadyExists, InputError

INTERNAL_SCHEMA_VERSION = 4
"""The layout of a graph's own tables: the newest one this version reads, and the one it writes."""


EntityKind = Literal["node", "edge"]

# --- ULIDs ----------------------------------------------------------------------------------------

# Crockford's base 32 leaves out I, L, O and U; 26 digits hold 130 bits, so the first is at most 7.
_ULID = re.compile(r"[0-7][0-9A-HJKMNP-TV-Z]{25}")


def is_ulid(text: str) -> bool:
    """Whether ``text`` is a ULID in its canonical, upper-case form."""
    return _ULID.fullmatch(text) is not None


def normalize_ulid(text: str, *, what: str = "ULID") -> str:
    """The canonical form of a ULID written in either case; ``what`` names it in the error."""
    upper = text.upper()
    if not text.isascii() or not is_ulid(upper):
        raise InputError(
            f"'{text}' is not a {what}",
            hint="it has 26 characters: digits and letters without I, L, O and U",
            details={"value": text},
        )
    return upper


def normalize_commit_id(text: str) -> str:
    """The canonical form of a graph commit id."""
    return normalize_ulid(text, what="commit id")


# --- tables ---------------------------------------------------------------------------------------


class TableKey(str):
    """The alias of a table, `node:Name` or `edge:Name`: a text that knows its two parts.

    Manifest rows, sidecars and JSON hold the plain text. Keys order as texts: edges before nodes.

    >>> TableKey.node("Person"), TableKey("edge:Knows").kind
    ('node:Person', 'edge')
    """

    __slots__ = ()

    @classmethod
    def of(cls, kind: EntityKind, type_name: str) -> TableKey:
        """The table of a node or edge type."""
        return cls(f"{kind}:{type_name}")

    @classmethod
    def node(cls, type_name: str) -> TableKey:
        """The table of a node type."""
        return cls(f"node:{type_name}")

    @classmethod
    def edge(cls, type_name: str) -> TableKey:
        """The table of an edge type."""
        return cls(f"edge:{type_name}")

    @classmethod
    def parse(cls, text: str) -> TableKey:
        """The key that a user wrote; raises `InputError` if it is none."""
        key = cls(text)
        if text.startswith(("node:", "edge:")) and key.type_name:
            return key
        raise InputError(f"'{text}' is not a table key", hint="write it as node:Name or edge:Name")

    @property
    def kind(self) -> EntityKind:
        """`node` or `edge`."""
        return "edge" if self.startswith("edge:") else "node"

    @property
    def type_name(self) -> str:
        """The name of the type."""
        return self.partition(":")[2]


# --- references -----------------------------------------------------------------------------------

REFERENCE_SEPARATOR = ":"


def reference_prefix(type_id: int) -> str:
    """What references to nodes of a type begin with, as in `model.references`."""
    return f"{type_id}{REFERENCE_SEPARATOR}"


# --- branches -------------------------------------------------------------------------------------

MAIN_BRANCH = "main"
SCHEMA_APPLY_LOCK = "__schema_apply_lock__"
"""The registry entry a running schema apply holds; never a branch a user sees."""

BRANCH_NAME_CHARACTERS_MAX = 200
_SEGMENT = re.compile(r"[A-Za-z0-9._-]+")


def check_branch_name(name: str) -> None:
    """Refuse a malformed branch name; whether the branch exists is another question.

    A name is `/`-separated segments of ASCII letters, digits, `.`, `_` and `-`. The segments `.`
    and `..` are refused too: names become parts of URLs and object paths, where they mean
    something else.
    """
    if len(name) > BRANCH_NAME_CHARACTERS_MAX:
        problem = f"has {len(name)} characters, at most {BRANCH_NAME_CHARACTERS_MAX} are allowed"
    elif not name:
        problem = "is empty"
    else:
        bad = [s for s in name.split("/") if s in (".", "..") or not _SEGMENT.fullmatch(s)]
        if not bad:
            return
        problem = f"has the segment '{bad[0]}'" if bad[0] else "has an empty segment"
    raise InputError(
        f"branch name '{name[:BRANCH_NAME_CHARACTERS_MAX]}' {problem}",
        hint="use letters, digits, '.', '_' and '-', with '/' between segments",
        details={"branch": name},
    )


def check_new_branch_name(name: str) -> None:
    """Refuse a name no branch may be created under: malformed, `main`, or reserved."""
    check_branch_name(name)
    if name == MAIN_BRANCH:
        raise AlreadyExists(
            "branch 'main' always exists", hint="choose another name", details={"branch": name}
        )
    if name == SCHEMA_APPLY_LOCK:
        raise InputError(
            f"branch name '{name}' is reserved",
            hint="choose another name",
            details={"branch": name},
        )


# --- actors ---------------------------------------------------------------------------------------

RESERVED_PREFIX = "omnigraph:"
"""Actor ids that begin so are signed by the product itself, for example in recovery."""


def check_declared_actor(actor: str, *, where: str = "an actor id") -> None:
    """Refuse an id that no caller may declare: a blank one, or one the product signs with.

    ``where`` says in the message where it was given. An id is otherwise any text, and is compared
    as it is.
    """
    if not actor.strip():
        raise InputError(f"{where} is blank", hint="give the id of who acts, or leave it out")
    if actor.startswith(RESERVED_PREFIX):
        raise InputError(
            f"{where} is `{actor}`, and ids that begin `{RESERVED_PREFIX}` are reserved",
            hint="use another id: these are signed by Omnigraph itself",
            details={"actor_id": actor},
        )
