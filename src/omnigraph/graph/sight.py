"""What an actor sees of a graph and may change of it, where a policy limits that."""

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
"""Views by actor, branch and schema; many of them are the same one."""
VIEWED_READERS_KEPT_MAX = 64
UNFINISHED_KEPT_MAX = 64


class Sight:
    """What each actor sees of an open graph whose policy has views."""

    def __init__(self, policy: Policy, catalog_of: Callable[[str], Catalog]) -> None:
        """``catalog_of`` has the types of a branch, as they are now."""
        self._policy = policy
        self._catalog_of = catalog_of
        self._lock = threading.Lock()
        self._views: OrderedDict[tuple[object, ...], View | None] = OrderedDict()
        self._write_rights: OrderedDict[tuple[str | None, str | None], WriteRights] = OrderedDict()
        """By the keys of both views: plans are kept by the catalogs that they give."""
        self._unfinished: OrderedDict[Identity | None, Unfinished] = OrderedDict()
        self._viewed: OrderedDict[tuple[str, str], ViewedReader] = OrderedDict()
        """By branch and view, the readers of its head that views restrict."""

    def _keep(self, kept: OrderedDict[Key, Value], key: Key, value: Value, most: int) -> None:
        with self._lock:
            keep_newest(kept, key, value, most)

    def view_of_all(
        self, by: Access, action: Action, catalog: Catalog, branches: Collection[str]
    ) -> View | None:
        """What an actor sees of several branches that are shown together; None for everything."""
        found: View | None = None
        for branch in branches:
            view = self.view(by, branch, catalog, action=action)
            if view is not None:
                found = view if found is None else found.common(view)
        return found

    def sees(self, by: Access, action: Action = Action.READ) -> Sees | None:
        """What an actor sees of branches; None where everything is shown to all."""
        if by.is_system:
            return None
        return partial(self.view_of_all, by, action)

    def unfinished_of(self, by: Access) -> Unfinished:
        """Pages of changes that an actor has begun to read; each actor has its own."""
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
        """What an actor sees of a branch by an action; None for everything.

        This is the one place that decides it, for all faces and verbs. Whether the action is
        allowed at all is asked of the gate: where no rule grants anything, the view is empty. A
        policy with views needs a named actor: raises `PolicyDenied` without one.
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
        """What an actor sees of a branch and may change of it; None for everything."""
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
        """The same for a branch that may yet have to be made, with the types of another."""
        return (
            None if by.is_system else self.write_rights(by, branch, self._catalog_of(seen_branch))
        )

    def seen(self, reader: SnapshotReader, view: View) -> SnapshotReader:
        """The rows of a reader that a view shows."""
        if not view.restricts_rows:
            return reader
        key = (reader.snapshot.branch, view.key)
        known = self._viewed.get(key)
        if known is None or known.whole is not reader:
            known = ViewedReader(reader, view)
            self._keep(self._viewed, key, known, VIEWED_READERS_KEPT_MAX)
        return known


def rights_to_bring(sight: Sight | None, by: Access, source: str | None = None) -> Rights:
    """What an actor may bring from other branches, as a merge does from its ``source``.

    Without a source, as where one commit is reverted, the rules about changes decide.
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
    """Before a write whose rows are not held against types; raises `Denied` for an actor
    whose rules are limited to some."""
    if sight is not None and sight.write_rights_on(by, branch, MAIN) is not None:
        raise Denied(
            f"`{verb}` is for actors whose rules are not limited to types",
            hint="write with `mutate` or `load` in this process, whose rows are held against "
            "the rules",
        )
