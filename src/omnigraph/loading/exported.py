"""Directories that `export` wrote, as sources of a load."""

from __future__ import annotations

import orjson

from omnigraph.errors import InputError
from omnigraph.loading.files import Files
from omnigraph.loading.sources import FileSource
from omnigraph.model.exports import EXPORT_FILE
from omnigraph.model.ids import TableKey
from omnigraph.model.receipts import EXPORT_VERSION, ExportReceipt


def read_export(path: str) -> ExportReceipt | None:
    """The description of the export at ``path``; None if there is none.

    Raises `InputError` for an export that is not complete: it was interrupted, or a file is gone
    or cut since.
    """
    files = Files.of_environment([path])
    place = path.rstrip("/")
    if files.is_pattern(path) or files.stat(f"{place}/{EXPORT_FILE}") is None:
        return None
    with files.open(f"{place}/{EXPORT_FILE}") as stream:
        try:
            document = orjson.loads(stream.read())
            version = document["omnigraph_export"]
            found = ExportReceipt.from_dict(document) if version == EXPORT_VERSION else None
        except (KeyError, TypeError, ValueError) as error:
            raise _unusable(path, f"{EXPORT_FILE} cannot be read") from error
    if found is None:
        raise _unusable(path, f"it has version {version}, and this release reads {EXPORT_VERSION}")
    if not found.is_complete:
        raise _unusable(path, "it was interrupted")
    for type in found.types:
        stamps = [files.stat(f"{place}/{file}") for file in type.files]
        if None in stamps or sum(stamp[0] for stamp in stamps if stamp) != type.bytes:
            raise _unusable(path, f"files of {type.type_name} are gone, or were changed")
    return found


def export_sources(path: str, found: ExportReceipt) -> list[FileSource]:
    """The files of an export, each with its type; graph records name theirs."""
    place = path.rstrip("/")
    return [
        FileSource(
            f"{place}/{file}",
            None if found.format == "jsonl" else TableKey.of(type.entity_kind, type.type_name),
        )
        for type in found.types
        for file in type.files
    ]


def exported_types(found: ExportReceipt) -> list[str]:
    """The keys of the types that an export has, also of those without entities."""
    return [TableKey.of(each.entity_kind, each.type_name) for each in found.types]


def _unusable(path: str, reason: str) -> InputError:
    return InputError(
        f"the export in {path} is not complete: {reason}",
        hint="export again; or name the files that you want with --node and --edge",
        details={"file": path},
    )
