"""Reading `__manifest`: one scan when a branch is first seen, one probe afterwards."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
from lance import LanceDataset

from omnigraph.effects.requests import concurrently
from omnigraph.errors import HistoricalVersionReclaimed, InternalError, NotFound
from omnigraph.model.types import LAST_UPDATED_AT, ROW_ADDRESS
from omnigraph.storage.datasets import DatasetRef, LanceStore, count_lance, latest_version
from omnigraph.storage.layout import MAIN, MANIFEST
from omnigraph.storage.legacy import AcceptedReader, OlderGraph
from omnigraph.storage.manifest_rows import DECODED_COLUMNS, BranchRow, decode_rows, head_object_id
from omnigraph.storage.snapshot import ManifestState
from omnigraph.storage.stamp import check_stamp, is_current, read_stamp
from omnigraph.syntax.suggest import did_you_mean

ROWS_OF_A_COMMIT = 16
"""More rows than most commits write: one per table, its own, and the head."""

_GONE = (HistoricalVersionReclaimed, OSError, ValueError)
"""Errors of reading a version that was removed."""


class ManifestBranch:
    """The manifest of one branch: its newest state, read as cheaply as it can be.

    A state and the handle it was read from are replaced together, so that a failed refresh leaves
    the previous pair in place.

    With ``older``, graphs of an older internal schema are shown too, as they are.
    """

    def __init__(
        self,
        lance: LanceStore,
        root_uri: str,
        branch: str,
        ref: str | None,
        older: AcceptedReader | None = None,
    ) -> None:
        self.branch = branch
        self.where = DatasetRef(f"{root_uri}/{MANIFEST}", ref)
        self.lance = lance
        self._root_uri = root_uri
        self._older = older
        self._current: tuple[LanceDataset, ManifestState] | None = None
        self._head_at: tuple[int, int] | None = None
        """A version, and the address of the branch's head row in it."""

    @property
    def current(self) -> tuple[LanceDataset, ManifestState]:
        """The state read last, and the dataset at its version; they belong together.

        A change is staged on a pair taken once: another thread may refresh in between, and a change
        that was validated against one version must not be staged on another.
        """
        return self._loaded()

    @property
    def handle(self) -> LanceDataset:
        """The dataset at the version of `state`."""
        return self._loaded()[0]

    @property
    def state(self) -> ManifestState:
        """The state read last; call `refresh` for the newest."""
        return self._loaded()[1]

    @property
    def stamp(self) -> int:
        """The internal-schema version the manifest is stored in."""
        return read_stamp(self.handle)

    def refresh(self) -> ManifestState:
        """The newest state. One probe if nothing moved; otherwise only the rows that did."""
        try:
            return self._refreshed()
        except _GONE:
            # What was the newest version may have been cleaned up while it was read.
            self._current = self._opened()
            return self._current[1]

    def _refreshed(self) -> ManifestState:
        handle, state = self._loaded()
        newest = latest_version(handle)
        if newest == state.version:
            return state
        moved = self.lance.open(self.where, newest)
        following = self._following(handle, state, moved)
        self._current = (moved, following)
        return following

    def head_address(self, handle: LanceDataset) -> int:
        """Where the head row lies in ``handle``; looked up unless it is known."""
        known = self._head_at
        if known is not None and known[0] == handle.version:
            return known[1]
        return _find_head_address(handle, self.branch)

    def adopt(
        self, handle: LanceDataset, state: ManifestState, head_address: int | None = None
    ) -> None:
        """Take over a state this process has just published."""
        self._current = (handle, state)
        self._head_at = None if head_address is None else (handle.version, head_address)

    def _loaded(self) -> tuple[LanceDataset, ManifestState]:
        if self._current is None:
            try:
                self._current = self._opened()
            except _GONE:
                self._current = self._opened()
        return self._current

    def _opened(self) -> tuple[LanceDataset, ManifestState]:
        handle = self.lance.open(self.where)
        return handle, self._scan(handle)

    def _following(
        self, handle: LanceDataset, state: ManifestState, moved: LanceDataset
    ) -> ManifestState:
        """The state at a newer version, from the rows that changed if they can be told."""
        if not (is_current(handle) and is_current(moved) and moved.has_stable_row_ids):
            # Only stable row ids carry the version a row was changed at. Without them, which is how
            # some older graphs were made, the filter below would find nothing.
            return self._scan(moved)
        count_lance("scan", self.where.address)
        # A changed row lies in a new fragment; those that were there before need no reading.
        known = handle.fragment_ids()
        fragments = [each for each in moved.get_fragments() if each.fragment_id not in known]
        rows = sum(each.metadata.physical_rows for each in fragments)
        # A compaction puts all former rows into new fragments as well. Telling them apart while
        # reading costs more than reading what a few commits have written.
        few = rows <= ROWS_OF_A_COMMIT * (moved.version - state.version)
        changed = moved.scanner(
            columns=DECODED_COLUMNS,
            filter=None if few else f"{LAST_UPDATED_AT} > {state.version}",
            fragments=fragments,
            with_row_address=True,
        ).to_table()
        # Absent when only a compaction moved the rows: then the old address is wrong, too.
        head_address = _head_address_among(changed, self.branch)
        self._head_at = None if head_address is None else (moved.version, head_address)
        following = state.following(moved.version, decode_rows(changed))
        if following.registry_changes != state.registry_changes:
            # A registry change may have deleted rows, which no filter shows.
            return self._scan(moved)
        return following

    def _scan(self, handle: LanceDataset) -> ManifestState:
        """The state a manifest shows as a whole; the stamp is checked before any row is decoded."""
        if self._older is not None and not is_current(handle):
            rows = OlderGraph(self.lance, self._root_uri, self._older()).rows(handle, self.branch)
        else:
            check_stamp(handle)
            count_lance("scan", self.where.address)
            rows = decode_rows(handle.to_table())
        return ManifestState.fold(self.branch, self.where.ref, handle.version, rows)


class Manifest:
    """The manifests of all branches of one graph; main's holds the registry of the others."""

    def __init__(
        self, lance: LanceStore, root_uri: str, older: AcceptedReader | None = None
    ) -> None:
        self.lance = lance
        self.root_uri = root_uri
        self.main = ManifestBranch(lance, root_uri, MAIN, None, older)
        self._older = older
        self._branches: dict[str, ManifestBranch] = {}

    def branch(self, name: str) -> ManifestBranch:
        """The manifest of a branch, by its current registration; raises `NotFound`."""
        if name == MAIN:
            return self.main
        row = self.registration(name)
        known = self._branches.get(name)
        if known is None or known.where.ref != row.ref:
            # Another ref under the same name is another branch: nothing of the old one is kept.
            known = ManifestBranch(self.lance, self.root_uri, name, row.ref, self._older)
            self._branches[name] = known
        return known

    def refreshed(self, name: str) -> ManifestBranch:
        """The manifest of a branch at its newest state; raises `NotFound`.

        The registry and a branch that is known already are probed at once.
        """
        known = self._branches.get(name)
        if known is None:
            branch = self.branch(name)
            branch.refresh()
            return branch
        branch, failure = concurrently(
            partial(self.branch, name),
            partial(_failure_of, known.refresh),
            threads=not self.lance.root.is_local,
        )
        if branch is not known:
            # The name was registered again with another ref; a failed probe of the old one is moot.
            branch.refresh()
        elif failure is not None:
            raise failure
        return branch

    def registration(self, name: str) -> BranchRow:
        """The registry entry of a branch other than main, read fresh."""
        branches = self.main.refresh().branches
        row = branches.get(name)
        if row is None:
            raise NotFound(
                f"there is no branch `{name}`",
                hint=did_you_mean(name, [MAIN, *branches])
                or f"create it with `omnigraph branch create {name}`",
            )
        return row


def _failure_of(work: Callable[[], object]) -> Exception | None:
    try:
        work()
    except Exception as failure:
        return failure
    return None


def _find_head_address(handle: LanceDataset, branch: str) -> int:
    """Look the head row of a branch up."""
    count_lance("lookup", handle.uri)
    key = head_object_id(branch).replace("'", "''")
    found = handle.to_table(["object_id"], f"object_id = '{key}'", with_row_address=True)
    if found.num_rows != 1:
        raise InternalError(f"branch {branch} has {found.num_rows} head rows")
    return int(found[ROW_ADDRESS][0].as_py())


def _head_address_among(rows: pa.Table, branch: str) -> int | None:
    """The address of a branch's head row in a scan with row addresses; None if it is not in it."""
    at: int = pc.index(rows["object_id"], head_object_id(branch)).as_py()
    return None if at < 0 else int(rows[ROW_ADDRESS][at].as_py())
