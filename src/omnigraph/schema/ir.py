"""The accepted IR: a shape plus the identity of everything in it.

Ids outlive names: a rename changes the shape and keeps the ids, and a dropped declaration that
comes back under its old name gets new ones. Types, properties and table incarnations share one
counter, so that no number ever means two things.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import get_args

from omnigraph.errors import SchemaContractError
from omnigraph.model.ids import is_ulid
from omnigraph.schema.catalog import TypeKind
from omnigraph.schema.shape import EdgeShape, InterfaceShape, NodeShape, SchemaShape

IR_VERSION = 2
IDENTITY_ID_MAX = 2**64 - 1
"""Ids are unsigned 64-bit numbers; the largest is never handed out."""

OFFLINE_DOMAIN = "0" * 26
"""Stands for "no graph": ids of this domain must not be persisted."""

TYPE_KINDS: tuple[TypeKind, ...] = get_args(TypeKind)
"""In the order ids are handed out and plans are written."""

TypeRef = tuple[TypeKind, str]
"""A type by kind and name; a node and an edge may share a name."""
PropertyRef = tuple[TypeKind, str, str]
"""A property by the kind and name of its owner, and its own name."""
TypeShape = InterfaceShape | NodeShape | EdgeShape


@dataclass(frozen=True, slots=True)
class SchemaIds:
    """The ids of one schema, by the names its shape uses."""

    types: Mapping[TypeRef, int]
    properties: Mapping[PropertyRef, int]
    incarnations: Mapping[TypeRef, int]
    """Of tables, so of nodes and edges; an interface has none."""


@dataclass(frozen=True, slots=True)
class SchemaIR:
    """One accepted schema: what it means, and which ids its declarations carry.

    Whether two of them are the same is told by `encoding.ir_hash`: `==` takes `@x(1)` and
    `@x(true)` for equal, as Python does.
    """

    domain: str
    """ULID of the root whose ids these are; equal ids of two domains have nothing in common."""
    next_identity_id: int
    shape: SchemaShape
    ids: SchemaIds


def types_of(shape: SchemaShape) -> dict[TypeRef, TypeShape]:
    """All types of a shape: interfaces, nodes, edges, each in byte order of name."""
    found: dict[TypeRef, TypeShape] = {("interface", s.name): s for s in shape.interfaces}
    found.update({("node", node.name): node for node in shape.nodes})
    found.update({("edge", edge.name): edge for edge in shape.edges})
    return found


def checked_domain(domain: str) -> str:
    """The domain itself, if it is a ULID in its canonical spelling."""
    if not is_ulid(domain):
        raise SchemaContractError(
            f"'{domain[:40]}' is not a schema identity domain",
            hint="a domain is a ULID: 26 upper-case characters, minted when a graph is created",
        )
    return domain
