"""Graphs as Spark frames: `omnigraph.spark.register(session)`, then `format("omnigraph")`.

If the option `policy` names a bundle, frames are those of an actor: the bundle decides, and rows
are visible, as for a handle with that policy. Spark processes open the graph themselves, so the
text of the bundle and the identity are sent to them. Graphs are imported only where they are
opened, because tasks of other frames do not need them.
"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from omnigraph.errors import Conflict, InputError
from omnigraph.model.records import dataclass
from omnigraph.pipeline.data_source.options import SourceActor
from omnigraph.pipeline.data_source.source import OmnigraphSource, register
from omnigraph.pipeline.streaming import failure_of
from omnigraph.storage.reader import PastReader, SnapshotReader
from omnigraph.views import ViewedReader

if TYPE_CHECKING:
    from omnigraph.branching.moments import SchemaHistory
    from omnigraph.commit.kernel import Kernel
    from omnigraph.graph import Graph
    from omnigraph.policy import Identity
    from omnigraph.schema.catalog import TableType

__all__ = ["DecidedSource", "OmnigraphSource", "failure_of", "register"]


class DecidedSource(OmnigraphSource):
    """The source, with policy decisions if the option `policy` names a bundle."""

    def acting(self) -> SourceActor | None:
        """The actor from the options; raises `InputError` and `PolicyInvalid`."""
        given = {name.lower(): value for name, value in self.options.items()}
        policy = given.get("policy")
        if policy is None:
            return None
        return Acting.of(policy, given.get("actor"), given.get("claims"))


@dataclass(frozen=True, slots=True)
class Acting:
    """An actor and the bundle that decides for it."""

    bundle: str
    """The text of the bundle, because other machines may not have its file."""
    identity: Identity

    @classmethod
    def of(cls, policy: str, actor: str | None, claims: str | None) -> Acting:
        """The actor from the options; raises `InputError` and `PolicyInvalid`."""
        if actor is None:
            raise InputError(
                "the option 'policy' needs the option 'actor'",
                hint='say who reads or writes: .option("actor", "act-bo")',
            )
        from omnigraph.policy import Identity, load_policy

        try:
            text = Path(policy).read_text(encoding="utf-8")
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise InputError(
                f"the policy {policy} cannot be read: {reason}", hint="name the file of a bundle"
            ) from None
        load_policy(Path(policy))
        return cls(text, Identity.of(actor, _claims(claims)))

    def graph(self, path: str, mode: Literal["read_only", "read_write"] = "read_only") -> Graph:
        """The graph as the actor sees it."""
        from omnigraph.graph import open_graph
        from omnigraph.policy import load_policy

        return open_graph(path, mode, policy=load_policy(self.bundle)).acting_as(self.identity)

    def pinned(
        self, path: str, type: str, branch: str, snapshot: str | None
    ) -> tuple[SnapshotReader, TableType, bool]:
        """The actor's visible rows of a type at one commit, and whether it sees the whole branch.

        Decided by the policy and audited. Raises `PolicyDenied`, and `InputError` for a commit with
        an older schema.
        """
        from omnigraph.graph.opened import recorded_verb
        from omnigraph.graph.tables import seen_of_type

        read_frame = recorded_verb(seen_of_type, "frame")
        place = {"branch": branch} if snapshot is None else {"snapshot": snapshot}
        graph = self.graph(path)
        reader, found = read_frame(graph, type, **place)
        if isinstance(_whole(reader), PastReader):
            raise InputError(
                "a frame for an actor is of a commit with the present schema",
                hint="query older commits, or make the frame with `Graph.frame`",
            )
        return reader, found, graph._view_of(reader.snapshot) is None

    def again(self, path: str, branch: str, commit_id: str, schema_hash: str) -> SnapshotReader:
        """The same rows in another process; raises `Conflict` if the schema has changed."""
        graph = self.graph(path)
        opened = graph._opened
        reader, catalog = graph._seen(opened.reader(branch, commit_id))
        if isinstance(reader, ViewedReader):
            catalog = reader.view.whole
        if catalog.schema_hash != schema_hash:
            raise Conflict(
                "the schema has changed since the frame was made", hint="make the frame again"
            )
        return reader

    def feed(self, path: str, branch: str) -> tuple[Kernel, SchemaHistory]:
        """The sources of a stream of changes, restricted to the actor; raises `PolicyDenied`."""
        graph = self.graph(path)
        graph._may_read("changes poll", branch)
        return graph._kernel, graph._schemas

    def require_writer(self, path: str, branch: str, from_: str | None) -> None:
        """Check the right to write rows, before tasks do.

        Raises `PolicyDenied`, and `Denied` for an actor whose rules are limited to types.
        """
        from omnigraph.branching.branches import list_branches
        from omnigraph.graph.sight import require_unlimited

        graph = self.graph(path, "read_write")
        opened, by = graph._opened, graph._access
        opened.gate.load(by, branch, from_, partial(list_branches, opened.kernel))
        require_unlimited(opened.sight, "frame.write", by, branch)

    def require_merger(self, path: str, source: str, target: str) -> None:
        """Check the right to merge batches into another branch."""
        graph = self.graph(path, "read_write")
        graph._opened.gate.branch_merge(graph._access, source, target)


def _whole(reader: SnapshotReader) -> SnapshotReader:
    return reader.whole if isinstance(reader, ViewedReader) else reader


def _claims(text: str | None) -> dict[str, object]:
    try:
        given = {} if text is None else json.loads(text)
    except ValueError:
        given = None
    if not isinstance(given, dict):
        raise InputError(
            f"the option 'claims' is no JSON object: {text}",
            hint='.option("claims", \'{"region": "eu"}\')',
        )
    return given
