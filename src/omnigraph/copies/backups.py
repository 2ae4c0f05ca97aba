"""Backups in a folder or bucket: files that several backups share, and a catalog for each backup.

The catalog is written last: only then does a backup exist. Files keep their names in the graph, so
that the next backup copies only new ones; another content under the same name is stored with its
digest in the name.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import orjson

from omnigraph.commit.kernel import Kernel
from omnigraph.copies.image import CopyImage, ImageFile, Vanished, expected, images
from omnigraph.copies.placing import THREADS, copy_file, place
from omnigraph.copies.receipts import (
    BackupInfo,
    BackupReceipt,
    BackupReport,
    CopyReceipt,
    PruneReceipt,
)
from omnigraph.effects.clock import MINT, SYSTEM_CLOCK, ulid_at
from omnigraph.effects.failures import FailureClass, StorageFailure
from omnigraph.effects.objects import ObjectStore, open_store
from omnigraph.effects.requests import concurrently
from omnigraph.effects.uri import Root
from omnigraph.errors import Busy, DamagedFile, InputError, NotFound, StorageError
from omnigraph.model.records import dataclass
from omnigraph.model.upkeep import ScrubFinding
from omnigraph.storage.digests import FileDigest, digest_chunks, digest_of
from omnigraph.storage.layout import ADJACENCY, DIGESTS, LEASES, LOAD_SCRATCH, RECOVERY
from omnigraph.storage.transactions import HINT

CATALOGS = "backups"
FILES = "files"
RUNNING = "running"
"""Prefix of the objects of running backups: `prune` refuses to run beside them."""
RUNNING_HOURS = 24
"""A run that began longer ago is considered dead."""
FORMAT = 1


@dataclass(frozen=True, slots=True)
class Stored:
    """The place of a file of a backup, and its digest."""

    digest: FileDigest
    object: str


@dataclass(frozen=True, slots=True)
class BackupCatalog:
    """One finished backup."""

    info: BackupInfo
    files: Mapping[str, Stored]
    moment: str | None = None
    """`_moment` before the branches were read; None in catalogs of older releases."""


Place = str | os.PathLike[str]
"""A folder or `s3://bucket/prefix`."""


def create_backup(
    kernel: Kernel, destination: Place, *, branch: str | None = None
) -> BackupReceipt:
    """Copy a graph as of one moment, with all branches or main and one, to ``destination``.

    Writers continue. Existing files are not copied again; the next run continues an interrupted
    one. Raises `DamagedFile` for a file that does not have its recorded content, and `InputError`
    if the destination has other files than backups.
    """
    store = open_store(Root.parse(destination))
    known = _catalogs(store)
    _require_backups(store, known)
    moment = _moment(kernel, branch)
    if known and known[-1].moment == moment:
        return BackupReceipt(store.root.uri, known[-1].info, True, 0, 0)
    running = f"{RUNNING}/{MINT.ulid()}.json"
    store.write(running, orjson.dumps({"source": kernel.root.uri}))
    try:
        for image in images(kernel, branch):
            try:
                return _stored(kernel, image, store, known, moment)
            except Vanished:
                continue
    finally:
        store.delete(running)
    raise StorageError("files kept vanishing", hint="run it again when no cleanup runs")


def _moment(kernel: Kernel, branch: str | None) -> str:
    """A digest of the names and sizes of all files of a graph; one request per thousand files.

    A file of a graph is never rewritten under the same name, except for those left out here and
    the schema, whose changes are commits. So equal digests imply an unchanged graph. Computed
    before the branches are read: a change in between is found by the next backup.
    """
    files = sorted(
        item
        for item in kernel.store.sizes().items()
        if item[0].partition("/")[0] not in _CHANGING and not item[0].endswith(f"/{HINT}")
    )
    return digest_of(orjson.dumps([kernel.root.uri, branch, files])).digest


_CHANGING = (LEASES, RECOVERY, DIGESTS, LOAD_SCRATCH, ADJACENCY)
"""Folders that are not part of a backup."""


def _stored(
    kernel: Kernel,
    image: CopyImage,
    store: ObjectStore,
    known: Sequence[BackupCatalog],
    moment: str,
) -> BackupReceipt:
    last = known[-1] if known else None
    if last is not None and _is_same(image, last):
        return BackupReceipt(store.root.uri, last.info, True, 0, 0)
    writer = _BackupWriter(kernel, image, store, known)
    work = [partial(writer.put, name) for name in image.files]
    stored = concurrently(*work, threads=True, work_max=THREADS)
    files = dict(zip(image.files, stored, strict=True))
    there = store.sizes(FILES)
    lost = next((each for each in files.values() if each.object not in there), None)
    if lost is not None:
        raise StorageError(f"{lost.object} was removed while the backup was made", hint="try again")
    info = BackupInfo(
        MINT.ulid(),
        image.source,
        SYSTEM_CLOCK.wall_us(),
        dict(image.heads),
        len(files),
        sum(each.digest.size for each in files.values()),
    )
    store.write(_catalog_name(info.backup_id), _encoded(BackupCatalog(info, files, moment)))
    return BackupReceipt(store.root.uri, info, False, writer.files_copied, writer.bytes_copied)


def _is_same(image: CopyImage, last: BackupCatalog) -> bool:
    if (image.source, dict(image.heads)) != (last.info.source, dict(last.info.heads)):
        return False
    return image.files.keys() == last.files.keys() and all(
        expected(file, last.files[name].digest) for name, file in image.files.items()
    )


class _BackupWriter:
    def __init__(
        self, kernel: Kernel, image: CopyImage, store: ObjectStore, known: Sequence[BackupCatalog]
    ) -> None:
        self._source = kernel.store
        self._image = image
        self._store = store
        self._known = {name: stored for catalog in known for name, stored in catalog.files.items()}
        self._there = store.sizes(FILES)
        self.files_copied = 0
        self.bytes_copied = 0

    def put(self, name: str) -> Stored:
        """Copy a file, unless it exists."""
        file, known = self._image.files[name], self._known.get(name)
        if known is not None and expected(file, known.digest) and known.object in self._there:
            return known
        place = f"{FILES}/{name}"
        if known is not None and file.digest is not None:
            place = f"{place}@{file.digest}"
        if file.digest is not None and self._there.get(place) == file.size:
            # Copied by an interrupted run: verify it by its digest.
            there = digest_chunks(self._store.chunks(place))
            if there.digest == file.digest:
                return Stored(there, place)
        found = self._copied(name, file, place)
        if not expected(file, found):
            self._store.delete(place)
            raise DamagedFile(
                f"{self._image.source}/{name}",
                "run `omnigraph scrub` and put back what it names; a damaged graph is not copied",
                "its content is not what was written",
            )
        self.files_copied += 1
        self.bytes_copied += found.size
        return Stored(found, place)

    def _copied(self, name: str, file: ImageFile, place: str) -> FileDigest:
        if file.content is not None:
            self._store.write(place, file.content)
            return digest_of(file.content)
        return copy_file(self._source.chunks(name), partial(self._store.write_chunks, place))


# --- listing and verifying ------------------------------------------------------------------------


def list_backups(destination: Place) -> list[BackupInfo]:
    """The finished backups at a place, oldest first."""
    return [catalog.info for catalog in _catalogs(open_store(Root.parse(destination)))]


def verify_backup(destination: Place, backup_id: str | None = None) -> BackupReport:
    """Read every file of all backups, or of one, and compare it with its digest.

    Raises `NotFound` if there is no such backup, or none at all.
    """
    store = open_store(Root.parse(destination))
    chosen = _chosen(store, backup_id)
    files: dict[str, tuple[str, Stored]] = {}
    for catalog in chosen:
        for name, stored in catalog.files.items():
            files.setdefault(stored.object, (name, stored))
    work = [partial(_checked, store, *file) for file in files.values()]
    found = concurrently(*work, threads=True, work_max=THREADS)
    return BackupReport(
        store.root.uri,
        tuple(catalog.info.backup_id for catalog in chosen),
        len(files),
        sum(size for size, _ in found),
        tuple(finding for _, finding in found if finding is not None),
    )


def _checked(store: ObjectStore, name: str, stored: Stored) -> tuple[int, ScrubFinding | None]:
    table = name.partition("/data/")[0].partition("/_")[0]
    try:
        digest = digest_chunks(store.chunks(stored.object))
    except StorageFailure as failure:
        if failure.failure_class is not FailureClass.NOT_FOUND:
            raise
        return 0, ScrubFinding("missing", stored.object, table, "it is missing")
    if digest == stored.digest:
        return digest.size, None
    problem = "its content is not what was written"
    return digest.size, ScrubFinding("damaged", stored.object, table, problem)


def restore_backup(
    destination: Place, graph: Place, *, backup_id: str | None = None
) -> CopyReceipt:
    """Create a graph at ``graph`` from the newest backup, or from the given one.

    It has the commits, branches and ids of the original graph. Every file is compared with its
    digest while it is copied. Raises `AlreadyExists` if ``graph`` is not empty, except after an
    interrupted restore of the same backup, which is continued.
    """
    store = open_store(Root.parse(destination))
    catalog = _chosen(store, backup_id)[-1]
    files = {
        name: ImageFile(stored.digest.size, stored.digest.digest)
        for name, stored in catalog.files.items()
    }
    image = CopyImage(catalog.info.source, catalog.info.heads, files)

    def chunks(name: str) -> Iterator[bytes]:
        return store.chunks(catalog.files[name].object)

    try:
        claim = {"backup": catalog.info.backup_id}
        return place(image, chunks, Kernel.of(Root.parse(graph)), claim)
    except Vanished as lost:
        raise DamagedFile(
            lost.message, f"`omnigraph backup verify {destination}` names all", "it is missing"
        ) from lost


def prune_backups(destination: Place, *, keep: int, confirm: bool = False) -> PruneReceipt:
    """Remove all but the newest ``keep`` backups, and files that no remaining one needs.

    Removes nothing without ``confirm``. Raises `Busy` while a backup is running.
    """
    if keep < 1:
        raise InputError("prune keeps at least one backup", hint="give `--keep 1` (keep=1) or more")
    store = open_store(Root.parse(destination))
    known = _chosen(store, None)
    _require_idle(store)
    kept, old = known[-keep:], known[:-keep]
    needed = {stored.object for catalog in kept for stored in catalog.files.values()}
    sizes = store.sizes(FILES)
    spare = [name for name in sizes if name not in needed]
    if confirm:
        # Catalogs first: a backup must not be listed while its files are being removed.
        for catalog in old:
            store.delete(_catalog_name(catalog.info.backup_id))
        for name in spare:
            store.delete(name)
    return PruneReceipt(
        store.root.uri,
        not confirm,
        tuple(catalog.info.backup_id for catalog in kept),
        tuple(catalog.info.backup_id for catalog in old),
        len(spare),
        sum(sizes[name] for name in spare),
    )


def _require_idle(store: ObjectStore) -> None:
    oldest = ulid_at(SYSTEM_CLOCK.wall_us() // 1_000 - RUNNING_HOURS * 3_600_000)
    for name in store.list(RUNNING):
        if name.removeprefix(f"{RUNNING}/").removesuffix(".json") >= oldest:
            raise Busy(
                f"a backup is being made at {store.root}",
                hint=f"wait for it; if it died, delete {name}",
            )


# --- catalogs -------------------------------------------------------------------------------------


def _chosen(store: ObjectStore, backup_id: str | None) -> list[BackupCatalog]:
    known = _catalogs(store)
    if not known:
        raise NotFound(
            f"there is no backup at {store.root}",
            hint=f"make one with `omnigraph backup create GRAPH {store.root}`",
        )
    if backup_id is None:
        return known
    found = [catalog for catalog in known if catalog.info.backup_id == backup_id]
    if not found:
        raise NotFound(
            f"there is no backup {backup_id} at {store.root}",
            hint=f"`omnigraph backup list {store.root}` shows them",
        )
    return found


def _require_backups(store: ObjectStore, known: Sequence[BackupCatalog]) -> None:
    if not known:
        tops = {name.partition("/")[0] for name in store.list()}
        if tops - {CATALOGS, FILES, RUNNING}:
            raise InputError(
                f"{store.root} holds other things than backups", hint="choose an empty place"
            )


def _catalog_name(backup_id: str) -> str:
    return f"{CATALOGS}/{backup_id}.json"


def _catalogs(store: ObjectStore) -> list[BackupCatalog]:
    names = store.list(CATALOGS)
    contents = store.read_each(names)
    return [_decoded(n, c) for n, c in zip(names, contents, strict=True) if c is not None]


def _encoded(catalog: BackupCatalog) -> bytes:
    files = {
        name: [stored.digest.size, stored.digest.digest, stored.object]
        for name, stored in sorted(catalog.files.items())
    }
    content = {
        "format": FORMAT,
        **catalog.info.to_dict(),
        "entries": files,
        "moment": catalog.moment,
    }
    return orjson.dumps({"catalog": content, "self": digest_of(orjson.dumps(content)).digest})


def _decoded(name: str, content: bytes) -> BackupCatalog:
    try:
        record: dict[str, Any] = orjson.loads(content)
        found = record["catalog"]
        if record["self"] != digest_of(orjson.dumps(found)).digest:
            raise ValueError("it does not have the digest it names")
        if found["format"] != FORMAT:
            raise InputError(
                f"{name} has the format {found['format']}, which this release does not know",
                hint="upgrade Omnigraph",
            )
        files = {
            each: Stored(FileDigest(size, digest), place)
            for each, (size, digest, place) in found["entries"].items()
        }
        for each in files:
            _require_inside(each)
        info = BackupInfo(
            found["backup_id"],
            found["source"],
            found["created_at"],
            found["heads"],
            found["files"],
            found["bytes"],
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise DamagedFile(name, "use another backup, or delete it", f"{error}") from error
    return BackupCatalog(info, files, found.get("moment"))


def _require_inside(name: str) -> None:
    """Refuse a catalog with a file outside of the graph: this product did not write it."""
    if name.startswith("/") or any(part in ("", ".", "..") for part in name.split("/")):
        raise ValueError(f"it names {name!r}")
