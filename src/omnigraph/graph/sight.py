"""Views: what an actor sees of a graph and may change of it, if a policy limits that."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Collection
from functools import partial
from typing import TYPE_CHECKING

from omnigraph.errors import Denied, PolicyDenied
from omnigraph.graph.gate import Access
from omnigraph.graph.opened import COMPILERS_KEPT_MAX, Key, Value, keep_newest
from omnigraph.policy import Action, Identity, Policy
from omnigraph.schema.catalog import Catalog
from omnigraph.storage.layout import MAIN
from omnigraph.storage.reader import SnapshotReader
from omnigraph.views import View, ViewedReader, WriteRights

if TYPE_CHECKING:
    from omnigraph.branching.change_pages import Unfinished
    from omnigraph.branching.merge import Rights
    from omnigraph.branching.moments import Sees

VIEWS_KEPT_MAX = 4096
"""Views by actor, branch and schema; many are the same object."""
VIEWED_READERS_KEPT_MAX = 64
UNFINISHED_KEPT_MAX = 64


class Sight:
    """The views of all actors on an open graph whose policy has views."""

    def __init__(self, policy: Policy, catalog_of: Callable[[str], Catalog]) -> None:
        """``catalog_of`` returns the current types of a branch."""
        self._policy = policy
        self._catalog_of = catalog_of
        self._lock = threading.Lock()
        self._views: OrderedDict[tuple[object, ...], View | None] = OrderedDict()
        self._write_rights: OrderedDict[tuple[str | None, str | None], WriteRights] = OrderedDict()
        """By the keys of both views, so that equal rights share their compiled plans."""
        self._unfinished: OrderedDict[Identity | None, Unfinished] = OrderedDict()
        self._viewed: OrderedDict[tuple[str, str], ViewedReader] = OrderedDict()
        """By branch and view, the restricted readers of the branch's head."""

    def _keep(self, kept: OrderedDict[Key, Value], key: Key, value: Value, most: int) -> None:
        with self._lock:
            keep_newest(kept, key, value, most)

    def view_of_all(
        self, by: Access, action: Action, catalog: Catalog, branches: Collection[str]
    ) -> View | None:
        """The combined view of an actor on several branches; None for everything."""
        found: View | None = None
        for branch in branches:
            view = self.view(by, branch, catalog, action=action)
            if view is not None:
                found = view if found is None else found.common(view)
        return found

    def sees(self, by: Access, action: Action = Action.READ) -> Sees | None:
        """The views of an actor by branch; None if everything is visible to all."""
        if by.is_system:
            return None
        return partial(self.view_of_all, by, action)

    def unfinished_of(self, by: Access) -> Unfinished:
        """An actor's own paged readings of changes."""
        known = self._unfinished.get(by.identity)
        if known is None:
            from omnigraph.branching.change_pages import Unfinished

            known = Unfinished()
            self._keep(self._unfinished, by.identity, known, UNFINISHED_KEPT_MAX)
        return known

    def view(
        self,
        by: Access,
        branch: str,
        catalog: Catalog,
        *,
        action: Action = Action.READ,
        target_branch: str | None = None,
    ) -> View | None:
        """The view of an actor on a branch by an action; None for everything.

        The only place that decides visibility. Whether the action is allowed at all is decided by
        the gate: if no rule grants anything, the view is empty. Raises `PolicyDenied` without a
        named actor.
        """
        if by.is_system:
            return None
        actor = by.identity
        if actor is None:
            raise PolicyDenied(
                "what can be read here depends on the actor, and there is none",
                action=action,
                actor=None,
                branch=branch,
                target_branch=target_branch,
                hint="say who reads: graph.acting_as(actor); a server knows it by the token",
            )
        key = (actor, branch, action, target_branch, catalog.schema_hash)
        if key in self._views:
            return self._views[key]
        view = self._policy.view(
            actor, catalog, action=action, branch=branch, target_branch=target_branch
        )
        self._keep(self._views, key, view, VIEWS_KEPT_MAX)
        return view

    def write_rights(self, by: Access, branch: str, catalog: Catalog) -> WriteRights | None:
        """What an actor sees of a branch and may change in it; None for everything."""
        if by.is_system:
            return None
        change = self.view(by, branch, catalog, action=Action.CHANGE)
        read = self.view(by, branch, catalog)
        if change is None and read is None:
            return None
        key = (None if change is None else change.key, None if read is None else read.key)
        known = self._write_rights.get(key)
        if known is None:
            known = WriteRights(change, read)
            self._keep(self._write_rights, key, known, COMPILERS_KEPT_MAX)
        return known

    def write_rights_on(self, by: Access, branch: str, seen_branch: str) -> WriteRights | None:
        """The same for a branch that may not exist yet, with the types of ``seen_branch``."""
        return (
            None if by.is_system else self.write_rights(by, branch, self._catalog_of(seen_branch))
        )

    def seen(self, reader: SnapshotReader, view: View) -> SnapshotReader:
        """A reader restricted to the rows of a view."""
        if not view.restricts_rows:
            return reader
        key = (reader.snapshot.branch, view.key)
        known = self._viewed.get(key)
        if known is None or known.whole is not reader:
            known = ViewedReader(reader, view)
            self._keep(self._viewed, key, known, VIEWED_READERS_KEPT_MAX)
        return known


def rights_to_bring(sight: Sight | None, by: Access, source: str | None = None) -> Rights:
    """The rights of an actor to bring changes from other branches, such as a merge's ``source``.

    Without a source, as for a revert, the rules of `change` decide.
    """
    if sight is None or by.is_system:
        from omnigraph.branching.merge import everything

        return everything

    def rights(catalog: Catalog, branches: Collection[str]) -> WriteRights | None:
        target = next(iter(branches))
        if source is None:
            change = sight.view(by, target, catalog, action=Action.CHANGE)
        else:
            change = sight.view(
                by, source, catalog, action=Action.BRANCH_MERGE, target_branch=target
            )
        read = sight.view_of_all(by, Action.READ, catalog, branches)
        return None if change is None and read is None else WriteRights(change, read)

    return rights


def require_unlimited(sight: Sight | None, verb: str, by: Access, branch: str) -> None:
    """Raise `Denied` for an actor with rules limited to types, which this write cannot check."""
    if sight is not None and sight.write_rights_on(by, branch, MAIN) is not None:
        raise Denied(
            f"`{verb}` is for actors whose rules are not limited to types",
            hint="write with `mutate` or `load` in this process, whose rows are held against "
            "the rules",
        )
