"""Identifiers as values, and the messages of commits.

ULIDs, commit ids, table keys, names of branches and tags, revisions, actor ids, idempotency keys.
Everything here only parses and checks texts; new ids are minted in `effects`.
"""

from __future__ import annotations

import datetime as dt
import re
from typing import Literal, NamedTuple

from omnigraph.errors import AlreadyExists, InputError

INTERNAL_SCHEMA_VERSION = 4
"""The layout version of a graph's own tables: the newest that is read, and written."""


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
            f"'{text[:64]}' is not a {what}",
            hint="it has 26 characters: digits and letters without I, L, O and U",
            details={"value": text[:64]},
        )
    return upper


def normalize_commit_id(text: str) -> str:
    """The canonical form of a graph commit id."""
    return normalize_ulid(text, what="commit id")


# --- tables ---------------------------------------------------------------------------------------


class TableKey(str):
    """The alias of a table, `node:Name` or `edge:Name`: a text with properties for its two parts.

    Manifest rows, sidecars and JSON contain the plain text. Keys sort as texts: edges before nodes.

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
        """The key that a user wrote; raises `InputError` if it is not one."""
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
    """The prefix of references to nodes of a type; see `model.references`."""
    return f"{type_id}{REFERENCE_SEPARATOR}"


# --- branches -------------------------------------------------------------------------------------

MAIN_BRANCH = "main"
SCHEMA_APPLY_LOCK = "__schema_apply_lock__"
"""The registry entry that a running schema apply holds; never a branch that users see."""

BRANCH_NAME_CHARACTERS_MAX = 200
_SEGMENT = re.compile(r"[A-Za-z0-9._-]+")


def check_branch_name(name: str, *, what: Literal["branch", "tag"] = "branch") -> None:
    """Raise `InputError` for a malformed name of a branch or tag; does not look whether it exists.

    A name is `/`-separated segments of ASCII letters, digits, `.`, `_` and `-`. The segments `.`
    and `..` are refused too: names become parts of URLs and object paths, where they mean something
    else.
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
        f"{what} name '{name[:BRANCH_NAME_CHARACTERS_MAX]}' {problem}",
        hint="use letters, digits, '.', '_' and '-', with '/' between segments",
        details={what: name[:BRANCH_NAME_CHARACTERS_MAX]},
    )


def is_branch_name(text: str) -> bool:
    """Whether a text is a valid branch name."""
    try:
        check_branch_name(text)
    except InputError:
        return False
    return True


def check_new_branch_name(name: str) -> None:
    """Refuse a name under which no branch may be created: malformed, `main`, or reserved."""
    check_branch_name(name)
    if name == MAIN_BRANCH:
        raise AlreadyExists(
            "branch 'main' always exists", hint="choose another name", details={"branch": name}
        )
    if name in (SCHEMA_APPLY_LOCK, HEAD):
        raise InputError(
            f"branch name '{name}' is reserved",
            hint="choose another name",
            details={"branch": name},
        )


# --- revisions ------------------------------------------------------------------------------------

HEAD = "HEAD"
"""In a revision: the head of the branch that a verb reads or writes."""
PREFIX_CHARACTERS_MIN = 4
"""Minimum length of an abbreviated commit id."""

_PREFIX = re.compile(r"[0-7][0-9A-HJKMNP-TV-Z]{3,24}")
_LIKE_AN_ID = re.compile(r"[0-7][0-9A-HJKMNP-TV-Z]*")
_MOMENT = re.compile(
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?P<seconds>:\d\d(?P<fraction>\.\d{1,6})?)?"
    r"(?P<zone>Z|[+-]\d\d:?\d\d)?"
)
_STEPS_DIGITS_MAX = 9


class Revision(NamedTuple):
    """The parts of a text that names a commit.

    ``name`` is a branch, a tag, or the id of a commit or its beginning. ``until`` (microseconds
    since 1970) selects the newest commit of the branch ``name`` that is not later, ``steps`` the
    first-parent ancestor that many commits before.
    """

    name: str
    until: int | None
    steps: int

    @classmethod
    def parse(cls, text: str) -> Revision:
        """The parts of `name`, `name~2`, `branch@time` or `branch@time~2`.

        A text of any other form becomes a name that no commit has.

        >>> Revision.parse("main~2"), Revision.parse("main@1970-01-01T00:00:01Z~")
        (Revision(name='main', until=None, steps=2), Revision(name='main', until=1999999, steps=1))
        """
        base, tilde, count = text.partition("~")
        if tilde and count and not (count.isdecimal() and len(count) <= _STEPS_DIGITS_MAX):
            return cls(text, None, 0)
        name, at, moment = base.rpartition("@")
        until = moment_until(moment) if at else None
        if at and until is None:
            return cls(text, None, 0)
        return cls(name if at else base, until, int(count or 1) if tilde else 0)

    @property
    def prefix(self) -> str | None:
        """The beginning of a commit id that the name may be; None if it cannot be one."""
        beginning = self.name.upper()
        return beginning if _PREFIX.fullmatch(beginning) else None


def moment_until(text: str) -> int | None:
    """The last microsecond of a time as written; None if the text is no time.

    A time to the second includes all of that second, so that the times `commit list` shows find
    their commits. Without a zone it is UTC.

    >>> moment_until("1970-01-01T00:00:01Z"), moment_until("1970-01-01 01:00+01:00")
    (1999999, 59999999)
    """
    found = _MOMENT.fullmatch(text)
    if found is None:
        return None
    try:
        moment = dt.datetime.fromisoformat(text)
    except ValueError:
        return None
    if found["zone"] is None:
        moment = moment.replace(tzinfo=dt.UTC)
    step = 60_000_000
    if found["seconds"] is not None:
        step = 1_000_000 // 10 ** len((found["fraction"] or ".")[1:])
    since = moment - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    return since // dt.timedelta(microseconds=1) + step - 1


def on_branch(revision: str, branch: str) -> str:
    """A revision that means the same on any branch: `HEAD` and times get the name of the branch.

    >>> on_branch("HEAD~2", "review"), on_branch("2026-11-16T12:53:27Z", "main")
    ('review~2', 'main@2026-11-16T12:53:27Z')
    """
    base, tilde, count = revision.partition("~")
    if base == HEAD:
        return f"{branch}{tilde}{count}"
    return revision if moment_until(base) is None else f"{branch}@{revision}"


def check_new_tag_name(name: str) -> None:
    """Refuse a name that no tag may have: malformed, reserved, or like the id of a commit."""
    check_branch_name(name, what="tag")
    problem = None
    if name in (MAIN_BRANCH, SCHEMA_APPLY_LOCK, HEAD):
        problem = "is reserved"
    elif _LIKE_AN_ID.fullmatch(name.upper()) and len(name) <= 26:
        problem = "reads like the id of a commit"
    if problem is not None:
        raise InputError(
            f"tag name '{name}' {problem}",
            hint=f"choose another name, as v{name}" if name != HEAD else "choose another name",
            details={"tag": name},
        )


# --- actors ---------------------------------------------------------------------------------------

RESERVED_PREFIX = "omnigraph:"
"""Actor ids with this prefix are used by the product itself, for example in recovery."""


def check_declared_actor(actor: str, *, where: str = "an actor id") -> None:
    """Refuse an actor id that no caller may use: a blank or a reserved one.

    ``where`` names the origin of the id in the message. An id is otherwise any text, compared
    exactly.
    """
    if not actor.strip():
        raise InputError(f"{where} is blank", hint="give the id of who acts, or leave it out")
    if actor.startswith(RESERVED_PREFIX):
        raise InputError(
            f"{where} is `{actor}`, and ids that begin `{RESERVED_PREFIX}` are reserved",
            hint="use another id: these are signed by Omnigraph itself",
            details={"actor_id": actor},
        )


# --- what a caller writes beside a commit ---------------------------------------------------------

KEY_CHARACTERS_MAX = 200
"""Maximum length of an idempotency key."""


def checked_key(key: object, name: str = "operation_id") -> str | None:
    """A valid idempotency key; None for none.

    Raises `InputError`, calling it ``name``, if it is not a text, blank or too long.
    """
    if key is None:
        return None
    if not isinstance(key, str):
        raise InputError(
            f"`{name}` is a text, not {type(key).__name__}", hint="name the write, or leave it out"
        )
    if not key.strip():
        raise InputError(
            f"`{name}` is empty",
            hint="give every write a name of its own, or leave it out; is a variable unset?",
        )
    if len(key) > KEY_CHARACTERS_MAX:
        raise InputError(
            f"`{name}` has {len(key)} characters, at most {KEY_CHARACTERS_MAX} are kept",
            hint="a name, a date or a digest will do",
        )
    return key


MESSAGE_CHARACTERS_MAX = 2_000


def checked_message(text: str | None) -> str | None:
    """A commit message without surrounding white space; None for none.

    Raises `InputError` if it is empty, too long, or not plain text.
    """
    if text is None:
        return None
    message = text.strip()
    if not message:
        raise InputError("the message is empty", hint="say why, or leave the message out")
    if len(message) > MESSAGE_CHARACTERS_MAX:
        raise InputError(
            f"the message has {len(message)} characters, at most {MESSAGE_CHARACTERS_MAX} are kept",
            hint="keep it short, and put the rest where it belongs",
        )
    if not message.replace("\n", "").replace("\t", "").isprintable():
        raise InputError(
            "the message holds characters that cannot be printed",
            hint="use letters, spaces and line breaks",
        )
    return message
