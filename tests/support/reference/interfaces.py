"""Interfaces: nodes of several types as one, told apart by their type and id."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from omnigraph.query import plan
from tests.support.reference.solutions import Entity, Path


@dataclass(frozen=True)
class Interfaces:
    """The node types that a plan mixes. A node of one of them goes by its reference: `12:id`."""

    tables: Mapping[str, Sequence[Entity]]
    types: Mapping[str, Sequence[tuple[str, int]]]
    """The node types of each interface."""
    numbers: Mapping[str, int]
    """Those of all types that are mixed."""

    @classmethod
    def of(cls, read: plan.ReadPlan, tables: Mapping[str, Sequence[Entity]]) -> Interfaces:
        return cls(tables, read.nodes_of, dict(read.references))

    def members(self, type_name: str) -> list[str]:
        """The node types of an interface, or the one node type."""
        if type_name in self.types:
            return [name for name, _ in self.types[type_name]]
        return [type_name]

    def nodes(self, type_name: str) -> list[Entity]:
        """The nodes of a type; those of an interface have references for ids."""
        found: list[Entity] = []
        for name in self.members(type_name):
            for row in self.tables[f"node:{name}"]:
                shown: dict[str, Any] = {**row, "@type": name}
                if type_name in self.types:
                    shown |= {"@id": row["id"], "id": self.reference(name, str(row["id"]))}
                found.append(shown)
        return found

    def reference(self, type_name: str, id: str) -> str:
        """What a node goes by in a hop; in an interface it goes by that already."""
        number = self.numbers.get(type_name)
        return id if number is None else f"{number}:{id}"

    def by_reference(self, type_name: str) -> dict[str, Entity]:
        """The nodes of a type by what they go by."""
        return {self.reference(type_name, str(row["id"])): row for row in self.nodes(type_name)}

    def edges(self, hop: plan.Expand) -> list[Entity]:
        """The edges of a hop with references at their ends."""
        source, target = hop.declared if hop.direction != "in" else hop.declared[::-1]
        return [
            {
                **edge,
                "src": self.reference(source, str(edge["src"])),
                "dst": self.reference(target, str(edge["dst"])),
            }
            for edge in self.tables[f"edge:{hop.edge_type}"]
        ]

    def shown_edge(self, hop: plan.Expand, edge: Entity) -> Entity:
        """An edge as it is bound: with ids at its ends, and the types at those of interfaces."""
        source, target = hop.declared if hop.direction != "in" else hop.declared[::-1]
        names = {number: name for name, number in self.numbers.items()}
        shown = dict(edge)
        for end, type_name in (("src", source), ("dst", target)):
            if type_name in self.types or type_name in self.numbers:
                number, _, id = str(edge[end]).partition(":")
                shown[end] = id
                shown[f"{end}_type"] = names[int(number)]
        return shown

    def shown_path(self, hop: plan.Expand, path: Path) -> Path:
        """The ids along a path of references."""
        near, far = (
            any(name in self.numbers for name in self.members(each))
            for each in (hop.source_type, hop.target_type)
        )
        first, *rest = path
        return (
            first.partition(":")[2] if near else first,
            *(each.partition(":")[2] if far else each for each in rest),
        )

    def repeats(self, hop: plan.Expand) -> bool:
        """Whether an edge may begin where another one ended."""
        near, far = (set(self.members(each)) for each in hop.declared)
        return bool(near & far)

    def may_stay(self, hop: plan.Expand) -> bool:
        """Whether a node may be of the types of both ends of a hop."""
        return bool(set(self.members(hop.source_type)) & set(self.members(hop.target_type)))
