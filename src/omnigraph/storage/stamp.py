"""Checks before a graph is read: the internal-schema stamp, and whether the graph was moved.

The stamp lies in the schema metadata of `__manifest`, so it is known before a single row is
decoded. What it says is believed only as far as the columns agree; nothing is ever guessed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from lance import LanceDataset

from omnigraph.effects.uri import Root
from omnigraph.errors import RootMoved, UnsupportedStorageVersion
from omnigraph.model.ids import INTERNAL_SCHEMA_VERSION, SCHEMA_APPLY_LOCK
from omnigraph.storage.manifest_rows import STAMP_KEY, BranchRow

UNSTAMPED = 1
"""What a manifest of the oldest layout is without a stamp: that shape had none."""

IDENTITY_COLUMNS = ("stable_table_id", "table_incarnation_id")
"""The columns that tell the layout of version 4 from those before it."""


def check_stamp(handle: LanceDataset) -> None:
    """Refuse any shape but the current one, before a single row is decoded."""
    if not is_current(handle):
        raise _refused(
            handle,
            f"this graph has internal schema {read_stamp(handle)}; "
            f"this version of Omnigraph writes {INTERNAL_SCHEMA_VERSION}",
            "open it read-write once to migrate it",
        )


def is_current(handle: LanceDataset) -> bool:
    """Whether a manifest has the current shape; of a graph, main's tells for all branches."""
    return read_stamp(handle) == INTERNAL_SCHEMA_VERSION


def read_stamp(handle: LanceDataset) -> int:
    """The stamp of a manifest this product can read, 1 to 4.

    Raises `UnsupportedStorageVersion` with the raw facts for a newer one, for one that is not a
    version number, and where stamp and columns contradict each other.
    """
    raw = _raw_stamp(handle)
    identity = [name for name in IDENTITY_COLUMNS if name in handle.schema.names]
    if raw is None:
        if identity:
            raise _refused(
                handle,
                "the manifest has identity columns but no internal-schema stamp",
                "restore the graph from a copy; the stamp is never guessed",
            )
        return UNSTAMPED
    if not (raw.isascii() and raw.isdecimal() and int(raw) >= UNSTAMPED):
        raise _refused(
            handle,
            f"the internal-schema stamp of the manifest is {raw!r}, not a version number",
            "restore the graph from a copy; the stamp is never guessed",
        )
    stamp = int(raw)
    if stamp > INTERNAL_SCHEMA_VERSION:
        raise _refused(
            handle,
            f"this graph has internal schema {stamp}; "
            f"this version of Omnigraph supports {INTERNAL_SCHEMA_VERSION}",
            "upgrade Omnigraph",
        )
    if stamp == INTERNAL_SCHEMA_VERSION and len(identity) < len(IDENTITY_COLUMNS):
        raise _refused(
            handle,
            f"the manifest is stamped {stamp} but lacks the identity columns of that version",
            "restore the graph from a copy; the stamp is never guessed",
        )
    return stamp


def _raw_stamp(handle: LanceDataset) -> str | None:
    raw = (handle.schema.metadata or {}).get(STAMP_KEY)
    return None if raw is None else raw.decode("utf-8", "replace")


def _refused(handle: LanceDataset, message: str, hint: str) -> UnsupportedStorageVersion:
    return UnsupportedStorageVersion(
        message,
        hint=hint,
        details={
            "stamp": _raw_stamp(handle),
            "supported": INTERNAL_SCHEMA_VERSION,
            "manifest_version": handle.version,
            "columns": list(handle.schema.names),
        },
    )


# --- moved roots ----------------------------------------------------------------------------------
#
# A Lance ref remembers the absolute address of the dataset it was forked from. A graph with only
# main holds no addresses and may be moved or copied; the refs of a branch would go on reading the
# files of the former place, and after a copy even find them.


def recorded_roots(branches: Iterable[BranchRow]) -> dict[str, str]:
    """The roots that registered branches were created at, as far as they are known."""
    return {
        row.name: row.root
        for row in branches
        if row.root is not None and row.name != SCHEMA_APPLY_LOCK
    }


def require_unmoved(recorded_roots: Mapping[str, str], root: Root) -> None:
    """Raise `RootMoved` if branches were created at another root than the one they are found at."""
    moved = {name: at for name, at in sorted(recorded_roots.items()) if at != root.uri}
    if not moved:
        return
    names, recorded = list(moved), next(iter(moved.values()))
    raise RootMoved(
        f"this graph was moved or copied from {recorded} to {root}, "
        f"and the files of {_listed(names)} are looked for at the former place",
        hint=f"move it back to {recorded}; or export there what you need, "
        "import it into a new graph, and use that",
        details={"recorded_root": recorded, "root": root.uri, "branches": names},
    )


def _listed(names: list[str]) -> str:
    return f"branch `{names[0]}`" if len(names) == 1 else f"branches `{'`, `'.join(names)}`"
