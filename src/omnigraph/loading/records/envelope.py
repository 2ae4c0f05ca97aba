"""From JSON values to records of known types: parses the envelope around a record's `data`.

A node is `{"type": N, "data": {…}}`, an edge `{"edge": E, "from": id, "to": id, "data": {…}}`,
with `from_type` and `to_type` for the types at ends that are interfaces. The strict grammar takes
exactly these members; the compatible one ignores others. `rows` checks `data`, for all records of a
type together.
"""

from __future__ import annotations

from dataclasses import field
from typing import Any

from omnigraph.loading.records.framing import Chunk
from omnigraph.loading.records.problems import (
    Grammar,
    Problem,
    ProblemKind,
    RecordPlace,
    name_hint,
    unit_of,
)
from omnigraph.model.arrow import DST, SRC
from omnigraph.model.records import dataclass
from omnigraph.model.types import VIRTUAL_COLUMNS
from omnigraph.model.values import shown
from omnigraph.schema.catalog import Catalog, EdgeType, TableType

_NODE_MEMBERS = frozenset({"type", "data"})
_EDGE_MEMBERS = frozenset({"edge", "from", "to", "data"})
_END_TYPES = {"from_type": SRC, "to_type": DST}
"""Members that name the type at an end that is an interface."""


@dataclass(slots=True)
class TypeRecords:
    """Records of one type in input order; all lists have one item per record."""

    type: TableType
    numbers: list[int] = field(default_factory=list)
    data: list[dict[str, Any]] = field(default_factory=list)
    sources: list[str] = field(default_factory=list)
    """`from` of edges; empty for nodes."""
    targets: list[str] = field(default_factory=list)
    end_types: dict[str, dict[int, object]] = field(default_factory=dict)
    """By column and position: the node type at an end, if the record names it."""


@dataclass(eq=False)
class _Refused(Exception):
    """Why a record is refused."""

    kind: ProblemKind
    message: str
    hint: str
    type_name: str | None = None
    member: str | None = None


class EnvelopeReader:
    """Sorts decoded records by type, under one grammar."""

    def __init__(self, catalog: Catalog, grammar: Grammar) -> None:
        self._catalog = catalog
        self._add = self._add_strict if grammar == "strict" else self._add_compatible
        self._unit = unit_of(grammar)
        self._nodes: dict[str, TypeRecords] = {}
        self._edges: dict[str, TypeRecords] = {}

    def sort(self, chunk: Chunk, source: str | None) -> tuple[list[TypeRecords], list[Problem]]:
        """The records of a chunk by type, and the problems of refused ones."""
        problems: list[Problem] = []
        for number, value in zip(chunk.numbers, chunk.values, strict=True):
            # Fast path for records with exactly the members above, which both grammars take;
            # inline, because calls would double the time per record.
            if isinstance(value, dict) and isinstance(data := value.get("data"), dict):
                group = None
                if len(value) == 2 and isinstance(name := value.get("type"), str):
                    group = self._nodes.get(name)
                elif len(value) == 4 and isinstance(name := value.get("edge"), str):
                    start, end = value.get("from"), value.get("to")
                    if isinstance(start, str) and isinstance(end, str):
                        group = self._edges.get(name)
                        if group is not None:
                            group.sources.append(start)
                            group.targets.append(end)
                if group is not None:
                    group.numbers.append(number)
                    group.data.append(data)
                    continue
            try:
                self._add(number, value)
            except _Refused as it:
                place = RecordPlace(source, number, self._unit)
                problems.append(
                    Problem(it.kind, it.message, place, it.type_name, it.member, it.hint)
                )
        groups = [*self._nodes.values(), *self._edges.values()]
        self._nodes, self._edges = {}, {}
        return groups, problems

    # --- the two grammars ---

    def _add_strict(self, number: int, record: object) -> None:
        if not isinstance(record, dict):
            raise _Refused(
                "invalid_json",
                f"invalid strict JSON at line {number}: a record is an object, got {shown(record)}",
                "write each record as one JSON object on a line of its own",
            )
        word = "type" if "type" in record else "edge"
        if ("type" in record) == ("edge" in record):
            raise _Refused(
                "bad_record",
                "a record has exactly one of 'type' or 'edge'",
                'a node has "type", an edge has "edge"',
            )
        known = _NODE_MEMBERS if word == "type" else _EDGE_MEMBERS | self._end_members(record)
        if not record.keys() <= known:
            raise _unknown_member(record, known)
        name = record[word]
        if not isinstance(name, str):
            raise _Refused(
                "bad_record",
                f"field '{word}' must be a string, got {shown(name)}",
                f"'{word}' is the name of a type",
                member=word,
            )
        data = record.get("data", {})
        if word == "type":
            self._add_node(number, name, data)
            return
        for member in ("from", "to"):
            if member not in record:
                raise self._bad_end(name, member, f"edge {name} requires field '{member}'")
            if not isinstance(record[member], str):
                got = shown(record[member])
                raise self._bad_end(name, member, f"field '{member}' must be a string, got {got}")
        self._add_edge(number, name, data, record)

    def _end_members(self, record: dict[str, Any]) -> set[str]:
        """Members by which this record may name node types: one for each end at an interface."""
        name = record["edge"]
        edge = self._catalog.edge_named(name) if isinstance(name, str) else None
        if edge is None or not edge.end_types:
            return set()
        return {member for member, column in _END_TYPES.items() if column in edge.end_types}

    def _add_compatible(self, number: int, record: object) -> None:
        if not isinstance(record, dict):
            raise _Refused(
                "bad_record",
                f"expected 'type' or 'edge' field: a record is an object, got {shown(record)}",
                'write records as {"type": …} and {"edge": …}, without an array around them',
            )
        data = record.get("data")
        if data is None:
            data = {}
        if isinstance(name := record.get("type"), str):
            self._add_node(number, name, data)
            return
        if not isinstance(name := record.get("edge"), str):
            raise _Refused(
                "bad_record",
                "expected 'type' or 'edge' field with the name of a type",
                'a node has "type", an edge has "edge"',
            )
        for member in ("from", "to"):
            end = record.get(member)
            if not isinstance(end, str):
                got = f": it must be a string, got {shown(end)}" if member in record else ""
                raise self._bad_end(name, member, f"edge missing '{member}'{got}")
        self._add_edge(number, name, data, record)

    # --- what both share ---

    def _add_node(self, number: int, name: str, data: Any) -> None:
        group = self._nodes.get(name)
        if group is None:
            node = self._catalog.nodes.get(name)
            if node is None:
                raise self._unknown_node(name)
            group = self._nodes[name] = TypeRecords(node)
        if not isinstance(data, dict):
            raise _bad_data(name, data)
        group.numbers.append(number)
        group.data.append(data)

    def _add_edge(self, number: int, name: str, data: Any, record: dict[str, Any]) -> None:
        group = self._edges.get(name)
        if group is None:
            edge = self._edge_type(name)
            # Edge names are case-insensitive: other spellings share the group.
            group = self._edges.setdefault(edge.name, TypeRecords(edge))
        if not isinstance(data, dict):
            raise _bad_data(name, data)
        for member, column in _END_TYPES.items():
            if member in record:
                group.end_types.setdefault(column, {})[len(group.numbers)] = record[member]
        group.numbers.append(number)
        group.data.append(data)
        group.sources.append(record["from"])
        group.targets.append(record["to"])

    def _edge_type(self, name: str) -> EdgeType:
        edge = self._catalog.edge_named(name)
        if edge is None:
            hint = name_hint(name, self._catalog.edges, "edge types")
            if name in self._catalog.nodes:
                hint = f'{name} is a node type: write it as {{"type": "{name}", …}}'
            raise _Refused("unknown_type", f"unknown edge type '{name}'", hint, name)
        return edge

    def _unknown_node(self, name: str) -> _Refused:
        hint = name_hint(name, self._catalog.nodes, "node types")
        if (edge := self._catalog.edge_named(name)) is not None:
            hint = f'{edge.name} is an edge type: write it as {{"edge": "{edge.name}", …}}'
        return _Refused("unknown_type", f"unknown node type '{name}'", hint, name)

    def _bad_end(self, name: str, member: str, message: str) -> _Refused:
        edge = self._edge_type(name)
        node = edge.source if member == "from" else edge.target
        hint = f"give '{member}' the id of a {node}"
        return _Refused("bad_endpoint", message, hint, edge.name, member)


def _unknown_member(record: dict[str, Any], known: frozenset[str]) -> _Refused:
    name = next(member for member in record if member not in known)
    message = f"unknown top-level graph batch field '{name}'"
    kind: ProblemKind = "unknown_field"
    if name in VIRTUAL_COLUMNS:
        kind, message = "reserved_field", f"{message}: it is reserved physical state"
        hint = "remove it"
    elif name in ("src", "dst") and "edge" in record:
        hint = f"write '{'from' if name == 'src' else 'to'}' instead of '{name}'"
    elif name in ("from", "to"):
        hint = "only edges have endpoints"
    else:
        hint = "properties and the id of a record belong into its 'data'"
    return _Refused(kind, message, hint, member=name)


def _bad_data(type_name: str, data: object) -> _Refused:
    return _Refused(
        "bad_record",
        f"field 'data' must be an object, got {shown(data)}",
        "'data' maps property names to values",
        type_name,
        "data",
    )
