"""The current inputs of a pipeline, and which of them earlier runs have loaded.

A source consists of units: the whole source, or with `incremental` each file or partition folder.
Every run stores the stamp (names, sizes, times) and the digest (contents) of the units it loaded
in its commit. A later run treats units with the same stamp as unchanged, and reads only the others
to compare their digests. There is no state outside of the graph.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import field
from pathlib import Path, PurePosixPath
from typing import Any

from omnigraph.errors import InputError, OmnigraphError, SourceChanged
from omnigraph.graph import Graph, open_graph
from omnigraph.loading.files import Files, Stamp, pattern_base
from omnigraph.model.receipts import CommitInfo
from omnigraph.model.records import dataclass
from omnigraph.pipeline.files.document import PipelineDocument, PipelineProblem, SourceKeys

WHOLE = "*"
"""The unit of a source that is not incremental."""
UNITS_MAX = 10_000
"""The most new files or partitions that one run loads: its commit stores their names."""
DIGEST_LETTERS = 24

METADATA = "pipeline"
"""The member of a commit's metadata that holds the receipt of a run."""


# --- history --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class History:
    """The receipts of earlier runs of a pipeline, from the commits of a branch."""

    last: CommitInfo | None
    """The newest commit of a run of the pipeline."""
    loaded: Mapping[str, Mapping[str, Sequence[str]]]
    """By source and unit: stamp and digest of the content that was loaded last."""

    @property
    def receipt(self) -> Mapping[str, Any]:
        """The receipt of the newest run; empty if there was none."""
        return receipt_of(self.last) if self.last is not None else {}


def receipt_of(commit: CommitInfo) -> Mapping[str, Any]:
    """The receipt that a pipeline run stored in a commit; empty for other commits."""
    found: Mapping[str, Any] = (commit.metadata or {}).get(METADATA, {})
    return found


def history_of(name: str, commits: Iterable[CommitInfo]) -> History:
    """The runs of a pipeline among the commits of a branch, given newest first."""
    last: CommitInfo | None = None
    loaded: dict[str, dict[str, Sequence[str]]] = {}
    for commit in commits:
        receipt = receipt_of(commit)
        if receipt.get("name") != name:
            continue
        last = last or commit
        for source, found in receipt["sources"].items():
            known = loaded.setdefault(source, {})
            for unit, state in (found.get("units") or {}).items():
                known.setdefault(unit, state)
    return History(last, loaded)


# --- sources --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PathFiles:
    """The files of one path of a source."""

    base: str
    """The folder that contains the partition folders."""
    files: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SourceInput:
    """The input of one run from one source."""

    name: str
    keys: SourceKeys
    groups: tuple[PathFiles, ...] = ()
    """The files to read; empty for a source without files, and if no unit is new."""
    example: PathFiles | None = None
    """A file to take the columns from when there is nothing to read."""
    snapshot: str | None = None
    """For a source that is a graph: the commit to read."""
    units: Mapping[str, Sequence[str]] | None = None
    """Stamp and digest of each unit to read; None if changes of the source cannot be detected."""
    changed: tuple[str, ...] = ()
    """Units that an earlier run loaded with other contents."""
    left: int = 0
    """How many new units are left to the next run."""
    stamps: Mapping[str, Stamp] = field(default_factory=dict)
    """Stamps by file, to detect a change during the run."""

    @property
    def is_watched(self) -> bool:
        """Whether changes of the source can be detected."""
        return self.units is not None

    @property
    def digests(self) -> dict[str, str] | None:
        """The digest of each unit to read."""
        return None if self.units is None else {name: unit[1] for name, unit in self.units.items()}

    @property
    def bytes(self) -> int:
        """The bytes to read; 0 if only Spark knows."""
        return sum(size for size, _ in self.stamps.values())

    def to_receipt(self) -> dict[str, Any]:
        """The form that is stored in the commit."""
        kept: dict[str, Any] = {"format": self.keys.format}
        if self.stamps:
            kept |= {"files": len(self.stamps), "bytes": self.bytes}
        if self.units is not None:
            kept["units"] = {name: list(unit) for name, unit in self.units.items()}
        return kept

    def require_unchanged(self) -> None:
        """Raise `SourceChanged` for a file whose stamp changed since the run began."""
        files = Files()
        for path, stamp in self.stamps.items():
            if files.stat(path) != stamp:
                raise SourceChanged(
                    f"{path} of source `{self.name}` changed while it was being loaded",
                    hint="run the pipeline again when its files are complete",
                    details={"file": path, "source": self.name},
                )


@dataclass(frozen=True, slots=True)
class Survey:
    """The inputs of a run, and the problems of sources that cannot be read."""

    inputs: dict[str, SourceInput]
    problems: list[PipelineProblem]


def survey(
    document: PipelineDocument, history: History, *, full: bool = False, contents: bool = True
) -> Survey:
    """Examine all sources; with ``full``, what earlier runs loaded is read again.

    Without ``contents`` no file is opened, and stamps are used as digests.
    """
    found = Survey({}, [])
    for name, keys in document.keys.sources.items():
        known = {} if full else history.loaded.get(name, {})
        try:
            found.inputs[name] = _surveyed(document, name, keys, known, contents=contents)
        except OmnigraphError as error:
            path = ("sources", name, "path")
            found.problems.append(document.problem(path, error.message, error.hint))
    return found


def _surveyed(
    document: PipelineDocument,
    name: str,
    keys: SourceKeys,
    known: Mapping[str, Sequence[str]],
    *,
    contents: bool,
) -> SourceInput:
    if keys.format == "omnigraph":
        return _graph_input(document, name, keys)
    if not keys.path or any("://" in path for path in keys.path):
        return SourceInput(name, keys)
    groups = [_group(document.resolved(path), name) for path in keys.path]
    units = _units_of(document, keys, groups)
    chosen: dict[str, Sequence[str]] = {}
    changed: list[str] = []
    new = 0
    for unit, stamps in sorted(units.items()):
        state = _state(stamps, known.get(unit), contents=contents)
        if keys.incremental is not None and unit in known:
            if known[unit][1] == state[1]:
                continue
            changed.append(unit)
        new += 1
        if new <= UNITS_MAX:
            chosen[unit] = state
    read = {path: stamp for unit in chosen for path, stamp in units[unit].items()}
    remaining = [PathFiles(each.base, tuple(f for f in each.files if f in read)) for each in groups]
    return SourceInput(
        name,
        keys,
        tuple(each for each in remaining if each.files),
        PathFiles(groups[0].base, groups[0].files[:1]),
        units=chosen,
        changed=tuple(changed),
        left=max(0, new - UNITS_MAX),
        stamps=read,
    )


def _graph_input(document: PipelineDocument, name: str, keys: SourceKeys) -> SourceInput:
    """The input from a graph: the current head of its branch."""
    if not keys.path:
        raise InputError("names no graph", hint="say where it lies")
    commit = keys.options.get("snapshot")
    if commit is None:
        graph: Graph = open_graph(document.resolved(keys.path[0]), "read_only")
        commit = graph.snapshot(str(keys.options.get("branch", "main"))).graph_commit_id
    return SourceInput(name, keys, snapshot=commit, units={WHOLE: (commit, commit)})


def _group(path: str, source: str) -> PathFiles:
    files = Files()
    if files.is_pattern(path):
        base = pattern_base(path)
        found = [inner for each in files.matching(path) for inner in _below(files, each)]
    else:
        base = path if files.is_directory(path) else str(Path(path).parent)
        found = list(_below(files, path))
    shown = [each for each in found if not _is_hidden(each, base)]
    if not shown:
        raise InputError(
            f"there is no file at {path}",
            hint="paths are relative to the folder of the pipeline file",
            details={"source": source, "file": path},
        )
    return PathFiles(base, tuple(sorted(dict.fromkeys(shown))))


def _below(files: Files, path: str) -> Iterator[str]:
    if files.is_directory(path):
        yield from (child for child, _ in files.below(path))
    elif files.stat(path) is not None:
        yield path


def _is_hidden(path: str, base: str) -> bool:
    """Names that begin with `_` or `.` are not data, as for Spark."""
    below = os.path.relpath(path, base)
    return any(part.startswith(("_", ".")) for part in PurePosixPath(below).parts)


def _units_of(
    document: PipelineDocument, keys: SourceKeys, groups: Sequence[PathFiles]
) -> dict[str, dict[str, Stamp]]:
    """By unit: the stamps of its files."""
    files = Files()
    units: dict[str, dict[str, Stamp]] = {}
    for group in groups:
        for path in group.files:
            stamp = files.stat(path)
            if stamp is None:
                raise SourceChanged(f"{path} vanished while the sources were listed")
            name = PurePosixPath(os.path.relpath(path, document.folder)).as_posix()
            match keys.incremental:
                case "files":
                    unit = name
                case "partitions":
                    unit = str(PurePosixPath(name).parent)
                case None:
                    unit = WHOLE
            units.setdefault(unit, {})[path] = stamp
    return units


def _state(
    stamps: Mapping[str, Stamp], known: Sequence[str] | None, *, contents: bool
) -> tuple[str, str]:
    """Stamp and digest of a unit; reads contents only if the stamp has changed."""
    base = os.path.commonpath([str(Path(path).parent) for path in stamps])
    names = {path: os.path.relpath(path, base) for path in stamps}
    stamp = _short(f"{names[path]} {stamps[path]}" for path in sorted(stamps))
    if known is not None and known[0] == stamp:
        return stamp, known[1]
    if not contents:
        return stamp, stamp
    paths = sorted(stamps)
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        digests = list(pool.map(_content_digest, paths))
    return stamp, _short(
        f"{names[path]} {digest}" for path, digest in zip(paths, digests, strict=True)
    )


def _content_digest(path: str) -> str:
    try:
        with Path(path).open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise InputError(
            f"{path} cannot be read: {error.strerror}", details={"file": path}
        ) from error


def _short(lines: Iterable[str]) -> str:
    digest = hashlib.sha256()
    for line in lines:
        digest.update(line.encode())
        digest.update(b"\n")
    return digest.hexdigest()[:DIGEST_LETTERS]


# --- runs -----------------------------------------------------------------------------------------


def is_unchanged(
    definition: str, inputs: Mapping[str, SourceInput], receipt: Mapping[str, Any]
) -> bool:
    """Whether the newest run had the same definition and the same input."""
    if receipt.get("definition") != definition:
        return False
    for name, found in inputs.items():
        if found.digests is None:
            return False
        if found.keys.incremental is not None:
            if found.digests:
                return False
            continue
        before = receipt["sources"].get(name, {}).get("units") or {}
        if found.digests != {unit: state[1] for unit, state in before.items()}:
            return False
    return True


def run_key(
    name: str, definition: str, inputs: Mapping[str, SourceInput], last: CommitInfo | None
) -> str:
    """The idempotency key of a run: equal for two attempts at the same run.

    It includes the previous run, so that an input can be loaded again after a different one.
    """
    digests = {source: found.digests for source, found in sorted(inputs.items())}
    after = last.graph_commit_id if last is not None else ""
    return f"pipeline:{name}:{_short([definition, repr(digests), after])}"
