"""Columns in the names of folders: `country=DE/part.parquet`, as tables of a lake are laid out."""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import unquote

from omnigraph.errors import InputError

NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"
"""What writers call the folder of rows without a value."""

FolderValues = tuple[tuple[str, str | None], ...]
"""Names of columns, and the text of their value for all rows of a file."""


def folder_values(folders: Iterable[str], path: str) -> FolderValues:
    """The columns that some folders name; those called otherwise mean nothing.

    Raises `InputError` naming ``path`` if two folders name the same column.

    >>> folder_values(["people", "country=DE", "day=2026-01-05 10%3A00"], "people/…/0.parquet")
    (('country', 'DE'), ('day', '2026-01-05 10:00'))
    """
    values: dict[str, str | None] = {}
    for folder in folders:
        name, mark, text = folder.partition("=")
        name = unquote(name)
        if not (name and mark):
            continue
        if name in values:
            raise InputError(
                f"{path}: column '{name}' is named by two folders",
                hint="keep one of them",
                details={"file": path},
            )
        values[name] = None if text in ("", NULL_FOLDER) else unquote(text)
    return tuple(values.items())
