"""What is made once of a social graph and kept: Parquet files, and the databases of all engines.

They lie in `.bench/`, named after size, seed and layout, so that a second run starts at once. Each
is made under another name and then renamed: an interrupted run leaves nothing half-made behind.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from bench.social import SocialGraph
from bench.social_graph import build_graph

CACHE = Path(__file__).parent.parent / ".bench"
LAYOUT = 1
"""Raised when the generator or one of the databases changes: older files are then left alone."""


class KeptFiles:
    """Files of one directory, each made when it is first asked for."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def made(self, name: str, make: Callable[[Path], object]) -> Path:
        """A file or directory, made if it is missing."""
        path = self.directory / name
        if not path.exists():
            self.directory.mkdir(parents=True, exist_ok=True)
            partial = path.with_name(f"partial-{name}")
            _remove(partial)
            make(partial)
            partial.rename(path)
        return path


class SocialFiles(KeptFiles):
    """The files of one social graph."""

    def __init__(self, social: SocialGraph, cache: Path = CACHE) -> None:
        super().__init__(cache / f"social-{social.size.name}-seed{social.seed}-v{LAYOUT}")
        self.social = social

    @property
    def persons(self) -> Path:
        """All persons, with a dense number in `row`, as Parquet."""
        numbers = pa.array(range(self.social.size.persons), pa.int32())
        return self._parquet("persons", lambda: self.social.persons.append_column("row", numbers))

    @property
    def knows(self) -> Path:
        """All acquaintances by key, as Parquet."""
        return self._parquet("knows", lambda: self.social.edges(self.social.knows))

    @property
    def blocks(self) -> Path:
        """All blocks by key, as Parquet."""
        return self._parquet("blocks", lambda: self.social.edges(self.social.blocks))

    @property
    def graph(self) -> Path:
        """The Omnigraph graph, indexes included."""
        return self.made("graph.omni", lambda path: build_graph(path, self.social))

    def _parquet(self, name: str, table: Callable[[], pa.Table]) -> Path:
        return self.made(f"{name}.parquet", lambda path: pq.write_table(table(), path))


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
