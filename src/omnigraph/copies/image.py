"""A consistent image of a graph: the heads of its branches at one moment, and all their files.

Writers prune the manifest, so its files, which are small, are read immediately. Files of tables
exist until a cleanup: if one is removed during the copy, a new image is taken.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from omnigraph.commit.kernel import Kernel
from omnigraph.commit.schema.contract import promoted_contract, staged_objects
from omnigraph.copies.census import Census, Pinned, branch_names, census_of, manifest_files, pin
from omnigraph.errors import Busy, DamagedFile, InputError, SchemaContractError, StorageError
from omnigraph.model.ids import SCHEMA_APPLY_LOCK
from omnigraph.model.records import dataclass
from omnigraph.storage.digests import ETAG, FileDigest, digest_of
from omnigraph.storage.layout import MAIN, MANIFEST, PAST_SCHEMAS, SCHEMA_OBJECTS
from omnigraph.storage.manifest_rows import check_stamp

ATTEMPTS_MAX = 8
"""How many images are tried before writers are locked out for the last one."""
LOOKS_MAX = 16
"""How often branches are read until none has moved in between."""


@dataclass(frozen=True, slots=True)
class ImageFile:
    """A file of a copy."""

    size: int
    digest: str | None
    """None if it has to be computed while the file is read."""
    content: bytes | None = None
    """The content of small files that may change or be removed during the copy."""


@dataclass(frozen=True, slots=True)
class CopyImage:
    """The files and heads of a copy."""

    source: str
    """The root of the original, whose address is in files of branches."""
    heads: Mapping[str, str]
    """By branch: its newest commit."""
    files: Mapping[str, ImageFile]


class Vanished(StorageError):
    """Cleanup removed a file while it was copied."""


def images(kernel: Kernel, branch: str | None) -> Iterator[CopyImage]:
    """Images of a graph: a caller that fails with `Vanished` takes the next one.

    Writers are locked out during the last one.
    """
    for _ in range(ATTEMPTS_MAX):
        try:
            yield _taken(kernel, _pinned_together(kernel, branch))
        except Vanished:
            continue
    with _alone(kernel):
        yield _taken(kernel, _pins(kernel, branch))


def _taken(kernel: Kernel, pinned: Mapping[str, Pinned] | None) -> CopyImage:
    if pinned is None:
        raise Vanished("the branches moved while they were looked at")
    for handle, _ in pinned.values():
        check_stamp(handle)
    store = kernel.store
    small = _manifest_files(kernel, pinned)
    small |= _schema_files(kernel, pinned[MAIN][1].head_snapshot().commit.schema_hash)
    census = census_of(store, kernel.lance, pinned)
    if census.problems:
        first = census.problems[0]
        raise DamagedFile(
            f"{kernel.root.uri}/{first.file}",
            "run `omnigraph scrub` and put back what it names; a damaged graph is not copied",
            first.message,
        )
    files = {name: _image_file(census, name, small.get(name)) for name in _names(census, small)}
    heads = {name: state.head.commit_id for name, (_, state) in pinned.items()}
    return CopyImage(kernel.root.uri, heads, files)


def _names(census: Census, small: Mapping[str, bytes]) -> Iterator[str]:
    """The files that versions list, and the transactions that made them."""
    for name in census.needed:
        if name not in census.sizes and name not in small:
            raise Vanished(f"{name} is gone")
        yield name
    yield from (name for name in small if name not in census.needed)
    for name in census.sizes.keys() & census.recorded.keys() - census.needed.keys():
        if "/_transactions/" in name and not name.startswith(f"{MANIFEST}/"):
            yield name


def _image_file(census: Census, name: str, content: bytes | None) -> ImageFile:
    if content is not None:
        found = digest_of(content)
        known = census.recorded.get(name)
        if known is not None and known.digest != found:
            raise DamagedFile(name, "run `omnigraph scrub`", "its content is not what was written")
        return ImageFile(found.size, found.digest, content)
    recorded = census.recorded.get(name)
    digest = None if recorded is None else recorded.digest
    if digest is None or digest.digest.startswith(ETAG):
        return ImageFile(census.sizes[name], None)
    return ImageFile(digest.size, digest.digest)


# --- one moment -----------------------------------------------------------------------------------


def _pins(kernel: Kernel, branch: str | None) -> dict[str, Pinned]:
    names = branch_names(kernel.manifest)
    if branch is not None and branch != MAIN:
        kernel.manifest.registration(branch)  # raises `NotFound`
        names = [MAIN, branch]
    elif branch is not None:
        names = [MAIN]
    return {name: pin(kernel.manifest, name) for name in names}


def _pinned_together(kernel: Kernel, branch: str | None) -> dict[str, Pinned] | None:
    """The state of all branches at one moment; None if one moved while others were read."""
    first = _pins(kernel, branch)
    for _ in range(LOOKS_MAX):
        if len(first) == 1:
            return first
        second = _pins(kernel, branch)
        if first.keys() == second.keys() and all(
            first[name][1].version == second[name][1].version for name in first
        ):
            return first
        first = second
    return None


@contextmanager
def _alone(kernel: Kernel) -> Iterator[None]:
    if kernel.manifest.main.refresh().branches.get(SCHEMA_APPLY_LOCK) is not None:
        raise Busy("a schema change is running", hint="wait for it and try again")

    def branches() -> set[str]:
        return {MAIN, *kernel.manifest.main.refresh().branches} - {SCHEMA_APPLY_LOCK}

    with kernel.own_graph(kernel.ids.ulid(), branches):
        yield


def _manifest_files(kernel: Kernel, pinned: Mapping[str, Pinned]) -> dict[str, bytes]:
    """The contents of all files that the pinned versions of the manifests consist of."""
    needed = manifest_files(kernel.store, kernel.lance, pinned)
    contents = kernel.store.read_each(needed)
    found = {}
    for name, content in zip(needed, contents, strict=True):
        if content is None:
            raise Vanished(f"{name} is gone")
        found[name] = content
    return found


def _schema_files(kernel: Kernel, schema_hash: str) -> dict[str, bytes]:
    """The accepted schema, which has to be that of main's head, and replaced ones."""
    store = kernel.store
    if staged_objects(store):
        raise Vanished("a schema change is about to be completed")
    names = [*SCHEMA_OBJECTS, *store.list(PAST_SCHEMAS)]
    found = dict(zip(names, store.read_each(names), strict=True))
    try:
        accepted = promoted_contract(store).schema_hash
    except SchemaContractError as error:
        raise InputError(error.message, hint=error.hint) from error
    if accepted != schema_hash or any(content is None for content in found.values()):
        raise Vanished("the schema changed while it was read")
    return {name: content for name, content in found.items() if content is not None}


def expected(file: ImageFile, found: FileDigest) -> bool:
    """Whether a copied file has the size and digest of the image."""
    return found.size == file.size and file.digest in (None, found.digest)
