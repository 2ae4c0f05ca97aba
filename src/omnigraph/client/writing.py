"""Mutations, loads and schema changes of a served graph."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from glob import glob, has_magic
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from omnigraph.client.exchange import (
    Text,
    checked_body,
    condition,
    header_key,
    present,
    utf8,
)
from omnigraph.client.failures import require_no_actor
from omnigraph.client.handle import AsyncHandle, SourceText
from omnigraph.errors import InputError, LimitExceeded, NotFound
from omnigraph.model.exports import EXPORT_FILE, complete_export
from omnigraph.model.ids import MAIN_BRANCH, TableKey
from omnigraph.model.load_options import (
    ErrorOptions,
    MapArgument,
    checked_options,
    map_texts,
)
from omnigraph.model.receipts import (
    AbsentMeaning,
    ExportReceipt,
    LoadMode,
    LoadReceipt,
    MutationReceipt,
    SchemaApplyReceipt,
    SchemaPlan,
    SchemaRebaseReceipt,
)
from omnigraph.wire import operations, requests
from omnigraph.wire.requests import read_document

Grammar = Literal["strict", "compatible"]


async def mutate(
    self: AsyncHandle,
    source: SourceText,
    params: Mapping[str, Any] | None = None,
    *,
    name: str | None = None,
    branch: str | None = None,
    expected_head: str | None = None,
    actor: str | None = None,
    operation_id: str | None = None,
    message: str | None = None,
) -> MutationReceipt:
    """Run a write query as one commit.

    ``expected_head`` makes it conditional: it runs only if that commit is the branch's head.
    ``operation_id`` is an idempotency key: a repeated write returns the first receipt. ``message``
    is kept with the commit.
    """
    require_no_actor(actor)
    text = Text.of(source)
    fields = {
        "query": text.text,
        "name": name,
        "branch": self._branch_of(branch),
        "operation_id": operation_id,
        "message": message,
    }
    return await self._ask(
        # Conditions need their own route, so that an older server refuses them instead of ignoring
        # them.
        operations.MUTATE if expected_head is None else operations.MUTATE_IF,
        MutationReceipt,
        headers=condition(expected_head),
        content=checked_body(requests.ChangeRequest, fields, params),
        text=text,
        key=operation_id,
    )


async def load(
    self: AsyncHandle,
    *paths: str | os.PathLike[str],
    mode: LoadMode,
    absent: AbsentMeaning = "keep",
    data: Data | None = None,
    map: MapArgument | None = None,
    branch: str | None = None,
    from_: str | None = None,
    grammar: Grammar = "compatible",
    replace_types: Iterable[str] = (),
    dry_run: bool = False,
    actor: str | None = None,
    operation_id: str | None = None,
    message: str | None = None,
    progress: Callable[[int], None] | None = None,
    errors: ErrorOptions | None = None,
) -> LoadReceipt:
    """Load graph records, from files of JSON lines or as ``data``, as one commit.

    The options are those of `Graph.load`, except that a server writes no error file. A request is
    limited to 32 MiB; load larger inputs through `Graph`.
    """
    require_no_actor(actor)
    errors = checked_options(errors, ErrorOptions, "errors")
    if errors.errors_out is not None:
        raise InputError(
            "a served graph writes no file of errors",
            hint="leave `errors_out` out: the problems are in the error or the receipt",
        )
    records = read_records(paths, data, progress)
    if mode == "overwrite":
        replace_types = [*replace_types, *types_of_exports(paths)]
    limit = operations.LOAD_BYTES_MAX
    if len(records) > limit:
        raise LimitExceeded(
            "graph_batch_request_bytes",
            limit,
            len(records),
            hint="load it in parts, or on the storage of the graph, with `--store` "
            "(omnigraph.open(uri=…))",
        )
    options: dict[str, Any] = {
        "branch": self._branch_of(branch),
        "from": from_,
        "mode": mode,
        "absent": None if absent == "keep" else absent,
        "replace_types": list(replace_types) or None,
        "operation_id": operation_id,
        "message": message,
        "dry_run": dry_run or None,
        "max_errors": errors.max_errors,
        "ignore_unknown": errors.ignore_unknown or None,
        "on_error": None if errors.on_error == "fail" else errors.on_error,
        "max_error_share": errors.max_error_share,
        "map": map_texts(map),
    }
    if grammar == "compatible":
        content = checked_body(requests.LoadRequest, options | {"data": utf8(records, "the data")})
        return await self._ask(operations.LOAD, LoadReceipt, content=content, key=operation_id)
    read_document(requests.LoadOptions, present(options))
    return await self._ask(
        operations.LOAD_NDJSON, LoadReceipt, query=options, content=records, key=operation_id
    )


async def plan_schema(
    self: AsyncHandle, desired: SourceText, *, allow_data_loss: bool = False
) -> SchemaPlan:
    """The steps from the accepted schema to another; changes nothing."""
    text = Text.of(desired)
    fields = {"schema_source": text.text, "allow_data_loss": allow_data_loss}
    content = checked_body(requests.SchemaRequest, fields)
    return await self._ask(
        operations.PLAN_SCHEMA, SchemaPlan, content=content, text=text, is_read=True
    )


async def apply_schema(
    self: AsyncHandle,
    desired: SourceText,
    *,
    allow_data_loss: bool = False,
    actor: str | None = None,
    operation_id: str | None = None,
    message: str | None = None,
) -> SchemaApplyReceipt:
    """Bring main to another schema (a text, or the path of a `.pg` file) as one commit.

    ``operation_id`` is an idempotency key: a repeated change returns the first receipt. ``message``
    is kept with the commit.
    """
    require_no_actor(actor)
    text = Text.of(desired)
    fields = {
        "schema_source": text.text,
        "allow_data_loss": allow_data_loss,
        "message": message,
    }
    return await self._ask(
        operations.APPLY_SCHEMA,
        SchemaApplyReceipt,
        content=checked_body(requests.SchemaApplyRequest, fields),
        text=text,
        key=header_key(operation_id),
    )


async def rebase_schema(
    self: AsyncHandle,
    branch: str | None = None,
    *,
    allow_data_loss: bool = False,
    dry_run: bool = False,
    actor: str | None = None,
    operation_id: str | None = None,
) -> SchemaRebaseReceipt:
    """Bring a branch to the schema that main has now, as one commit on the branch.

    The options are those of `Graph.rebase_schema`. ``operation_id`` is an idempotency key: a
    repeated request returns the first receipt.
    """
    require_no_actor(actor)
    target = self._branch_of(branch) or MAIN_BRANCH
    fields = {"branch": target, "allow_data_loss": allow_data_loss, "dry_run": dry_run}
    content = checked_body(requests.SchemaRebaseRequest, fields)
    return await self._ask(
        operations.REBASE_SCHEMA,
        SchemaRebaseReceipt,
        content=content,
        key=header_key(operation_id),
        is_read=dry_run,
    )


# --- records of a load ----------------------------------------------------------------------------


_BLOCK_BYTES = 1 << 20
_RECORDS = (".jsonl", ".ndjson", ".json")
_COMPRESSED = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2", ".lz4": "lz4"}

Data = bytes | str | Iterable[bytes]


def read_records(
    paths: Iterable[str | os.PathLike[str]],
    data: Data | None,
    progress: Callable[[int], None] | None = None,
) -> bytes:
    """All records as lines; paths may be compressed files, directories or patterns.

    Raises `NotFound` for a path without files, and `InputError` for a file that is named twice. A
    load is a single request, so all records are held in memory.
    """
    parts = [_content(file) for file in _all_files(paths)]
    if isinstance(data, str):
        parts.append(data.encode())
    elif isinstance(data, bytes):
        parts.append(data)
    elif data is not None:
        parts.append(b"".join(data))
    if progress is not None:
        for part in parts:
            progress(len(part))
    return b"\n".join(part.removesuffix(b"\n") for part in parts)


# Finds the same files as loads by `Graph`, which also handle tables.


def _all_files(paths: Iterable[str | os.PathLike[str]]) -> Iterator[Path]:
    seen: set[Path] = set()
    for path in paths:
        export_at(path)
        for file in _files(Path(path).expanduser()):
            if file.resolve() in seen:
                raise InputError(
                    f"{file} is given twice",
                    hint="name each file once; directories and patterns may hold others you name",
                    details={"file": str(file)},
                )
            seen.add(file.resolve())
            yield file


def export_at(given: str | os.PathLike[str]) -> ExportReceipt | None:
    """The export in a directory; raises `InputError` if it is incomplete, or of tables."""
    path = Path(given).expanduser()
    description = path / EXPORT_FILE
    if not description.is_file():
        return None

    def size_of(file: str) -> int | None:
        return (path / file).stat().st_size if (path / file).is_file() else None

    found = complete_export(description.read_bytes(), str(path), size_of)
    if found.format != "jsonl":
        raise InputError(
            f"{path} is an export as {found.format}, and a server loads graph records",
            hint="export with `--format jsonl` (format='jsonl'), or load it on the storage, with "
            "`--store` (omnigraph.open(uri=…))",
            details={"file": str(path)},
        )
    return found


def types_of_exports(paths: Iterable[str | os.PathLike[str]]) -> list[str]:
    """The keys of all types in exports among ``paths``, which an overwrite replaces."""
    exports = filter(None, map(export_at, paths))
    return [TableKey.of(t.entity_kind, t.type_name) for found in exports for t in found.types]


def _files(path: Path) -> list[Path]:
    """The files that a path, a directory or a pattern names, once each."""
    names = [path]
    # A file's name may look like a pattern.
    if has_magic(str(path)) and not os.path.lexists(path):
        names = [Path(name) for name in sorted(glob(str(path), recursive=True))]  # noqa: PTH207
        if not names:
            raise NotFound(
                f"no file matches {path}",
                hint="quote the pattern if your shell should not expand it",
                details={"file": str(path)},
            )
        base = next(parent for parent in path.parents if not has_magic(str(parent)))
        if not _is_note(path.relative_to(base)):
            names = [name for name in names if not _is_note(name.relative_to(base))]
    found = [file for name in names for file in (_below(name) if name.is_dir() else [name])]
    if not found:
        raise NotFound(
            f"there is nothing to load in {path}",
            hint=f"names end in {', '.join(_RECORDS)}",
            details={"file": str(path)},
        )
    shortest: dict[Path, Path] = {}
    for file in sorted(found, key=lambda file: (len(file.parts), file.is_symlink())):
        shortest.setdefault(file.resolve(), file)
    return sorted(shortest.values())


def _below(directory: Path) -> Iterator[Path]:
    seen: set[str] = set()
    for current, folders, names in os.walk(directory, followlinks=True):
        if os.path.realpath(current) in seen:
            folders.clear()
            continue
        seen.add(os.path.realpath(current))
        for file in (Path(current, name) for name in names):
            if _has_records(file.name) and not _is_note(file.relative_to(directory)):
                yield file


def _is_note(below: Path) -> bool:
    """Whether a name marks bookkeeping files, by the convention of data lakes."""
    return any(part.startswith(("_", ".")) for part in below.parts)


def _has_records(name: str) -> bool:
    name = name.lower()
    for suffix in _COMPRESSED:
        name = name.removesuffix(suffix)
    return name.endswith(_RECORDS)


def _content(path: Path) -> bytes:
    if not path.exists():
        raise NotFound(f"there is no file `{path}`", details={"file": str(path)})
    # The suffix tells the compression, as in loads by `Graph`.
    compression = _COMPRESSED.get(path.suffix.lower())
    with pa.input_stream(str(path), compression=compression, buffer_size=_BLOCK_BYTES) as stream:
        content: bytes = stream.read()
    return content
