"""What happened to a table of an interrupted operation.

Ownership is proved by transaction uuids. Only sidecars of the oldest shape, which have none, are
judged by version numbers.
"""

from __future__ import annotations

from enum import Enum

from omnigraph.commit.sidecar import SidecarTable, WriterKind


class TableClass(Enum):
    """What happened to one table of an interrupted operation."""

    INVARIANT_VIOLATION = "its head is below its published version"
    NO_MOVEMENT = "nothing was committed"
    ROLLED_PAST_EXPECTED = "everything planned was committed"
    INCOMPLETE = "only part of the plan was committed"
    COMPENSATION_PENDING = "it was restored, but that is not published yet"
    FOREIGN_EFFECT = "somebody else committed to it"
    ALREADY_PUBLISHED = "what was committed is published"
    UNEXPECTED = "its versions are not the ones that were planned"


def class_of(
    table: SidecarTable, pin: int, head: int, chain: list[str | None], strangers: set[str | None]
) -> TableClass:
    """The class of a table from where it stands and which transactions brought it there.

    ``chain`` are those after the expected version, ``strangers`` those among them that are neither
    planned by this operation nor retired by an earlier one.
    """
    planned = [tx.uuid for tx in table.transactions]
    if head < pin:
        return TableClass.INVARIANT_VIOLATION
    if head == pin and not set(planned) & set(chain):
        return TableClass.NO_MOVEMENT
    if pin != table.expected_version:
        return TableClass.FOREIGN_EFFECT
    if chain == planned:
        return TableClass.ROLLED_PAST_EXPECTED
    if chain and chain[-1] == table.restore_uuid:
        return TableClass.COMPENSATION_PENDING
    return TableClass.FOREIGN_EFFECT if strangers else TableClass.INCOMPLETE


def class_by_versions(
    table: SidecarTable, writer_kind: WriterKind, pin: int, head: int, last_uuid: str | None
) -> TableClass:
    """The class of a table of a sidecar without identities, from versions alone.

    ``last_uuid`` is the transaction of the head: an undoing of ours is known by it all the same.
    """
    expected, planned = table.expected_version, table.post_commit_pin
    if head < pin:
        return TableClass.INVARIANT_VIOLATION
    if head == pin:
        published = pin > expected and pin >= planned
        return TableClass.ALREADY_PUBLISHED if published else TableClass.NO_MOVEMENT
    if last_uuid == table.restore_uuid:
        return TableClass.COMPENSATION_PENDING
    if writer_kind in ("Mutation", "Load"):
        complete = expected == pin and head == pin + 1 == planned
    else:
        complete = expected == pin
    return TableClass.ROLLED_PAST_EXPECTED if complete else TableClass.UNEXPECTED
