"""The keys of pipeline files, from the models that read them."""

from __future__ import annotations

from typing import Any

from pydantic.fields import FieldInfo

from docs.generators.text import cell, first_paragraph
from omnigraph.pipeline.files import document

INTRODUCTION = """\
# Pipeline files

<!-- Written by `make docs` from omnigraph.pipeline.files.document: edit there. -->

A pipeline file is YAML, read strictly: unknown and duplicate keys are errors, told with their line
and the nearest word. [The guide](../guide/pipelines.md) shows one. Paths are relative to the folder
of the file; expressions and queries are Spark SQL, checks are queries of the graph.
"""

SECTIONS: tuple[tuple[str, type[Any]], ...] = (
    ("The file", document.PipelineKeys),
    ("`target`", document.PipelineTarget),
    ("`sources.NAME`", document.SourceKeys),
    ("`transforms.NAME`", document.TransformKeys),
    ("`nodes.TYPE`", document.NodeKeys),
    ("`edges.TYPE`", document.EdgeKeys),
    ("`embed[]`", document.EmbedKeys),
    ("`checks[]`", document.CheckKeys),
)


def pipelines_page() -> str:
    """A table of keys for each mapping of the file."""
    parts = [INTRODUCTION]
    for title, model in SECTIONS:
        parts.append(f"\n## {title}\n\n{first_paragraph(model)}\n")
        parts.append("\n| Key | Default | Meaning |\n| --- | --- | --- |\n")
        fields: dict[str, FieldInfo] = model.model_fields
        for name, field in fields.items():
            meaning = cell(field.description or "")
            parts.append(f"| `{field.alias or name}` | {_default(field)} | {meaning} |\n")
    return "".join(parts)


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True, validated_data={})
    if value is None or value in ({}, []):
        return "–"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"
