"""The way in: from a schema text to a catalog, against an accepted schema or on its own."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from omnigraph.schema.admission import admit
from omnigraph.schema.catalog import Catalog
from omnigraph.schema.identity import IdentityWarning, initialize, resolve
from omnigraph.schema.ir import OFFLINE_DOMAIN, SchemaIR
from omnigraph.schema.parser import parse_schema
from omnigraph.schema.projection import project
from omnigraph.syntax.source import Source


@dataclass(frozen=True, slots=True)
class CompiledSchema:
    """A schema text that was admitted, with its identity and its catalog."""

    source: str
    """The text as it will be persisted."""
    ir: SchemaIR
    catalog: Catalog
    warnings: tuple[IdentityWarning, ...]


def compile_schema(
    origin: str | bytes | Path | Source,
    *,
    accepted: SchemaIR | None = None,
    domain: str = OFFLINE_DOMAIN,
) -> CompiledSchema:
    """Compile a schema text, its bytes, or the file at a path.

    With ``accepted``, declarations that are still there keep its ids. Without it the text describes
    a new graph: every id is new, and belongs to ``domain``. A caller that has no graph at all, such
    as a linter, leaves both out; what it gets cannot be persisted.

    Raises `SchemaParseError`, `CatalogError` or `IdentityError`, with the position of the cause.

    >>> compiled = compile_schema("node City { pop: U32? }")
    >>> str(compiled.catalog.nodes["City"].properties["pop"].type)
    'U32?'
    """
    admitted = admit(parse_schema(origin))
    resolution = initialize(admitted, domain) if accepted is None else resolve(admitted, accepted)
    return CompiledSchema(
        admitted.source.text, resolution.ir, project(resolution.ir), resolution.warnings
    )
