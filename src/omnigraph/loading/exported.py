"""Directories that `export` wrote, as sources of a load."""

from __future__ import annotations

from omnigraph.loading.files import Files
from omnigraph.loading.sources import FileSource
from omnigraph.model.exports import EXPORT_FILE, complete_export
from omnigraph.model.ids import TableKey
from omnigraph.model.receipts import ExportReceipt


def read_export(path: str) -> ExportReceipt | None:
    """The description of the export at ``path``; None if there is none.

    Raises `InputError` for an export that is not complete.
    """
    files = Files.of_environment([path])
    place = path.rstrip("/")
    if files.is_pattern(path) or files.stat(f"{place}/{EXPORT_FILE}") is None:
        return None
    with files.open(f"{place}/{EXPORT_FILE}") as stream:
        document = stream.read()

    def size_of(file: str) -> int | None:
        stamp = files.stat(f"{place}/{file}")
        return None if stamp is None else stamp[0]

    return complete_export(document, path, size_of)


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
