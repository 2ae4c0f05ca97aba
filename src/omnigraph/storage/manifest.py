"""Reading `__manifest`: one scan when a branch is first seen, one probe afterwards."""

from __future__ import annotations

from lance import LanceDataset

from omnigraph.effects.io_counters import count
from omnigraph.errors import NotFound
from omnigraph.storage.datasets import DatasetRef, LanceStore, latest_version
from omnigraph.storage.layout import MAIN, MANIFEST
from omnigraph.storage.manifest_rows import BranchRow, decode_rows
from omnigraph.storage.snapshot import ManifestState
from omnigraph.storage.stamp import check_stamp
from omnigraph.syntax.suggest import did_you_mean


class ManifestBranch:
    """The manifest of one branch: its newest state, read as cheaply as it can be.

    A state and the handle it was read from are replaced together, so that a failed refresh leaves
    the previous pair in place.
    """

    def __init__(self, lance: LanceStore, root_uri: str, branch: str, ref: str | None) -> None:
        self.branch = branch
        self.where = DatasetRef(f"{root_uri}/{MANIFEST}", ref)
        self.lance = lance
        self._current: tuple[LanceDataset, ManifestState] | None = None

    @property
    def handle(self) -> LanceDataset:
        """The dataset at the version of `state`."""
        return self._loaded()[0]

    @property
    def state(self) -> ManifestState:
        """The state read last; call `refresh` for the newest."""
        return self._loaded()[1]

    def refresh(self) -> ManifestState:
        """The newest state. One probe if nothing moved; otherwise only the rows that did."""
        handle, state = self._loaded()
        newest = latest_version(handle)
        if newest == state.version:
            return state
        moved = self.lance.open(self.where, newest)
        check_stamp(moved)
        count("lance", "scan", self.where.address)
        changed = moved.to_table(filter=f"_row_last_updated_at_version > {state.version}")
        following = state.with_rows(newest, decode_rows(changed))
        if following.registry_changes != state.registry_changes:
            # A registry change may have deleted rows, which no filter shows.
            following = self._scan(moved)
        self._current = (moved, following)
        return following

    def adopt(self, handle: LanceDataset, state: ManifestState) -> None:
        """Take over a state this process has just published."""
        self._current = (handle, state)

    def _loaded(self) -> tuple[LanceDataset, ManifestState]:
        if self._current is None:
            handle = self.lance.open(self.where)
            check_stamp(handle)
            self._current = (handle, self._scan(handle))
        return self._current

    def _scan(self, handle: LanceDataset) -> ManifestState:
        count("lance", "scan", self.where.address)
        rows = decode_rows(handle.to_table())
        return ManifestState.fold(self.branch, self.where.ref, handle.version, rows)


class Manifest:
    """The manifests of all branches of one graph; main's holds the registry of the others."""

    def __init__(self, lance: LanceStore, root_uri: str) -> None:
        self.lance = lance
        self.root_uri = root_uri
        self.main = ManifestBranch(lance, root_uri, MAIN, None)
        self._branches: dict[str, ManifestBranch] = {}

    def branch(self, name: str) -> ManifestBranch:
        """The manifest of a branch, by its current registration; raises `NotFound`."""
        if name == MAIN:
            return self.main
        row = self.registration(name)
        known = self._branches.get(name)
        if known is None or known.where.ref != row.ref:
            # Another ref under the same name is another branch: nothing of the old one is kept.
            known = ManifestBranch(self.lance, self.root_uri, name, row.ref)
            self._branches[name] = known
        return known

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
