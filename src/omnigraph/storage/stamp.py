"""The internal-schema stamp: which shape of `__manifest` a graph has."""

from __future__ import annotations

from lance import LanceDataset

from omnigraph.errors import UnsupportedStorageVersion
from omnigraph.model.versions import INTERNAL_SCHEMA_VERSION
from omnigraph.storage.manifest_rows import STAMP_KEY


def check_stamp(handle: LanceDataset) -> None:
    """Refuse any shape but the current one, before a single row is decoded."""
    stamp = read_stamp(handle)
    if stamp != INTERNAL_SCHEMA_VERSION:
        raise _unsupported(stamp)


def read_stamp(handle: LanceDataset) -> int:
    """The stamp of a manifest; an absent one on the oldest layout means 1.

    Raises `UnsupportedStorageVersion` with the raw facts when it is not a number, or missing on a
    layout that already has the columns of version 4.
    """
    raw = (handle.schema.metadata or {}).get(STAMP_KEY)
    has_identity = "stable_table_id" in handle.schema.names
    if raw is None:
        if has_identity:
            raise UnsupportedStorageVersion(
                "the manifest has identity columns but no internal-schema stamp",
                hint="restore the graph from a copy; the stamp is never guessed",
            )
        return 1
    text = raw.decode("utf-8", "replace")
    if not text.isdecimal():
        raise UnsupportedStorageVersion(f"the internal-schema stamp is {text!r}, not a number")
    stamp = int(text)
    if stamp == INTERNAL_SCHEMA_VERSION and not has_identity:
        raise UnsupportedStorageVersion(
            f"the manifest is stamped {stamp} but lacks the identity columns of that version"
        )
    return stamp


def _unsupported(stamp: int) -> UnsupportedStorageVersion:
    newer = stamp > INTERNAL_SCHEMA_VERSION
    return UnsupportedStorageVersion(
        f"this graph has internal schema {stamp}; "
        f"this version of Omnigraph supports {INTERNAL_SCHEMA_VERSION}",
        hint="upgrade Omnigraph" if newer else "open it read-write once to migrate it",
        details={"stamp": stamp, "supported": INTERNAL_SCHEMA_VERSION},
    )
