"""Changes of entities in a few words: the same on the command line and in a notebook."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from omnigraph.model.changes import EntityChange, Image
from omnigraph.model.text_table import ELLIPSIS, cell_text, one_line

VALUE_WIDTH = 40
"""Longer values are cut; the JSON form has them whole."""

NULL, ABSENT = "<null>", "<absent>"
"""Told apart from texts, and from each other."""

MARKS = {"insert": ("+", "green"), "update": ("~", "yellow"), "delete": ("-", "red")}
"""For each operation a sign and a colour."""


def subject(change: EntityChange) -> str:
    """Which entity it is about; of an edge, its ends as well, and where they were if it moved."""
    before = None if change.before is None else change.before.endpoints
    pairs = dict.fromkeys(ends for ends in (before, change.endpoints) if ends is not None)
    between = " ⇒ ".join(f"({ends.source} → {ends.target})" for ends in pairs)
    return one_line(f"{change.kind} {change.type_name} {change.id} {between}".rstrip())


def difference(change: EntityChange) -> str:
    """How the values of an updated entity differ; nothing for others, and without images."""
    if change.before is None or change.after is None:
        return ""
    before, after = change.before.properties, change.after.properties
    return ", ".join(
        f"{name} {_side(before, name)} → {_side(after, name)}"
        for name in dict.fromkeys((*before, *after))
        if name not in before or name not in after or repr(before[name]) != repr(after[name])
    )


def _side(values: Mapping[str, Any], name: str) -> str:
    return short(values[name]) if name in values else ABSENT


def spelled(image: Image | None, names: Iterable[str] = ()) -> str:
    """An entity as names and values, only those of ``names`` if there are any."""
    if image is None:
        return "-"
    values = image_values(image)
    return ", ".join(f"{name} {short(values[name])}" for name in names or values)


def image_values(image: Image) -> dict[str, Any]:
    """Everything an image has: the ends of an edge as `from` and `to`, then properties."""
    ends = image.endpoints.to_dict() if image.endpoints is not None else {}
    return {**ends, **image.properties}


def short(value: Any) -> str:
    """A value on one line, cut if it is long."""
    if value is None:
        return NULL
    text = one_line(cell_text(value))
    return text if len(text) <= VALUE_WIDTH else text[: VALUE_WIDTH - 1] + ELLIPSIS
