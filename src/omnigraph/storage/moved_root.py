"""Noticing that a graph lies somewhere else than it was built.

A Lance ref remembers the absolute address of the dataset it was forked from. A graph with nothing
but main holds no addresses and may be moved or copied freely; the refs of a branch would go on
reading, and after a copy even find, the files of the former place.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from omnigraph.effects.uri import Root
from omnigraph.errors import RootMoved
from omnigraph.model.ids import SCHEMA_APPLY_LOCK
from omnigraph.storage.manifest_rows import BranchRow


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
