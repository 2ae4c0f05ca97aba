"""One spelling for every value: canonical JSON and the hashes over it."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from omnigraph.schema.catalog import Annotation


def canonical_json(value: Any) -> str:
    """Compact JSON with sorted members; equal values have equal texts, and only they do.

    >>> canonical_json({"b": 1.0, "a": "é"})
    '{"a":"é","b":1.0}'
    """
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )


def sha256_of(text: str) -> str:
    """`sha256:` and the hexadecimal digest of a text's UTF-8 bytes."""
    return "sha256:" + hashlib.sha256(text.encode("utf-8")).hexdigest()


def annotation_json(annotation: Annotation) -> dict[str, Any]:
    """An annotation as JSON: `name`, `value` and, when it has options, `kwargs`."""
    form: dict[str, Any] = {"name": annotation.name, "value": annotation.value}
    if annotation.options:
        form["kwargs"] = dict(annotation.options)
    return form


def annotation_key(annotation: Annotation) -> tuple[str, str]:
    """What annotations are sorted and compared by: the name, then all of it.

    The objects themselves will not do: in Python `True`, `1` and `1.0` are equal, in a schema they
    are three different values.
    """
    return annotation.name, canonical_json(annotation_json(annotation))
