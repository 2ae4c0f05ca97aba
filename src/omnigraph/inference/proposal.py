"""Proposes the types of a graph from examined columns: nodes with keys, and edges between them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from omnigraph.inference.columns import InferredColumn
from omnigraph.inference.keys import (
    SOURCE_WORDS,
    TARGET_WORDS,
    KeyCandidate,
    Reference,
    References,
    key_candidates,
    names_agree,
)
from omnigraph.inference.tables import InferredTable, words_of
from omnigraph.model.arrow import DST, ID, SRC
from omnigraph.model.ids import EntityKind
from omnigraph.model.records import dataclass
from omnigraph.model.types import VIRTUAL_COLUMNS, ValueType

_PROPERTY_NAME = re.compile(r"[a-z_][A-Za-z0-9_]*")
_END_NAMES = ("from", "to", SRC, DST)
_KEY_WORDS = ("id", "key", "code", "uuid", "no", "nr")
_QUOTED_MAX = 60


@dataclass(frozen=True, slots=True)
class InferredProperty:
    """A property, and the column it is filled from."""

    name: str
    column: str
    key: int | str
    """The position of the column; its name, if its table has no positions."""
    type: ValueType
    notes: tuple[str, ...] = ()
    """Why it is declared like this."""


@dataclass(frozen=True, slots=True)
class InferredEnd:
    """One end of an edge type, and the column that identifies its nodes."""

    column: str
    key: int | str
    """As for `InferredProperty`."""
    node: str
    """The type of the nodes."""
    key_property: str
    """The property of these nodes whose values the column has."""
    empty: int = 0
    """Rows in which it is empty, which make no edge."""


@dataclass(frozen=True, slots=True)
class InferredType:
    """A node type or an edge type for the rows of one input."""

    kind: EntityKind
    name: str
    table: str
    """The name of the input; for edges found in a table of nodes, that of the node type."""
    source: str
    """The name of the input in messages."""
    rows: int
    properties: tuple[InferredProperty, ...] = ()
    key: tuple[str, ...] = ()
    """The key of an edge type, with `src` and `dst`; empty if values do not identify rows."""
    ends: tuple[InferredEnd, InferredEnd] | None = None
    left_out: tuple[tuple[str, str], ...] = ()
    """Columns that no property can have, and why."""
    notes: tuple[str, ...] = ()


@dataclass(slots=True)
class _Candidate:
    """A table, with the possible keys and references among its columns."""

    table: InferredTable
    keys: list[KeyCandidate]
    references: References
    key: KeyCandidate | None = None
    ends: tuple[Reference, Reference] | None = None


def propose(tables: Sequence[InferredTable]) -> list[InferredType]:
    """The types for some tables, nodes before edges; the tables have been profiled."""
    for table in tables:
        table.profile()
    keys = {id(table): key_candidates(table) for table in tables}
    every = [key for table in tables for key in keys[id(table)]]
    candidates = [
        _Candidate(
            table,
            keys[id(table)],
            References.of(table, [key for key in every if key.table is not table]),
        )
        for table in tables
    ]
    by_table = {id(each.table): each for each in candidates}
    for candidate in candidates:
        candidate.key = _chosen_key(candidate, candidates)
    # A table with columns such as `origin` and `destination` is certainly one of edges. These are
    # decided first, so that for the others it is known which tables have nodes.
    for needs_words in (True, False):
        for candidate in candidates:
            if candidate.ends is None:
                candidate.ends = _ends(candidate, by_table, needs_words=needs_words)
    proposal = _Proposal(candidates)
    edges_of_nodes = list(proposal.edges_of_nodes())
    nodes = [proposal.type_of(each) for each in candidates if each.ends is None]
    edges = [proposal.type_of(each) for each in candidates if each.ends is not None]
    return [*nodes, *edges, *edges_of_nodes]


# --- keys and ends --------------------------------------------------------------------------------


def _chosen_key(candidate: _Candidate, others: Sequence[_Candidate]) -> KeyCandidate | None:
    """The key to which most columns of other tables refer, or that is named like one."""

    def uses(key: KeyCandidate) -> int:
        return sum(
            each.key is key and each.is_complete
            for other in others
            for each in other.references.found
        )

    best = max(
        candidate.keys, key=lambda key: (uses(key), *(-rank for rank in key.rank)), default=None
    )
    return best if best is not None and (uses(best) or best.is_likely) else None


def usable_references(
    candidate: _Candidate, by_table: dict[int, _Candidate], *, may_be_empty: bool = False
) -> list[Reference]:
    """One reference for each column that identifies a node in every row, in column order.

    With ``may_be_empty``, in every row in which it is not empty.
    """
    chosen: dict[int | str, Reference] = {}
    for each in candidate.references.found:
        target = by_table[id(each.key.table)]
        is_to_nodes = target.ends is None and target.key is each.key
        if not (each.is_complete and is_to_nodes):
            continue
        if each.column.nulls(candidate.table.rows) and not may_be_empty:
            continue
        known = chosen.get(each.column.key)
        if known is None or _closeness(each) < _closeness(known):
            chosen[each.column.key] = each
    return list(chosen.values())


def _ends(
    candidate: _Candidate, by_table: dict[int, _Candidate], *, needs_words: bool
) -> tuple[Reference, Reference] | None:
    """The two columns with the ends of edges; None for a table of nodes."""
    ends = usable_references(candidate, by_table)
    chosen = {each.column.key for each in ends}
    source = next((each for each in ends if _has_word(each, SOURCE_WORDS)), None)
    target_end = next((each for each in ends if _has_word(each, TARGET_WORDS)), None)
    if source is not None and target_end is not None and source is not target_end:
        return source, target_end
    has_own_key = any(key.has_key_name and key.column.key not in chosen for key in candidate.keys)
    if needs_words or len(ends) < 2 or has_own_key:
        return None
    return ends[0], ends[1]


def _has_word(reference: Reference, words: frozenset[str]) -> bool:
    return any(word.lower() in words for word in words_of(reference.column.name))


def _closeness(reference: Reference) -> tuple[bool, int]:
    return not names_agree(reference.column.name, reference.key), len(reference.key.hashes)


# --- names ----------------------------------------------------------------------------------------


def _property_names(candidate: _Candidate, kind: EntityKind) -> dict[int | str, str]:
    """A unique name for each column, in the order of the table."""
    taken = {*VIRTUAL_COLUMNS, ID, *(_END_NAMES if kind == "edge" else ())}
    columns = list(candidate.table.columns.values())
    names: dict[int | str, str] = {}
    # Names that need no change come first, so that others are changed if they collide.
    reserved = frozenset(taken)
    for column in sorted(columns, key=lambda each: not _can_stay(each.name, reserved)):
        wanted = property_name(column.name, candidate.table.type_name)
        name, number = wanted, 2
        while name in taken:
            name = f"{wanted}_{number}"
            number += 1
        taken.add(name)
        names[column.key] = name
    return names


def _can_stay(name: str, taken: frozenset[str]) -> bool:
    return bool(_PROPERTY_NAME.fullmatch(name)) and name not in taken


def property_name(column: str, type_name: str) -> str:
    """The name of a property for a column.

    >>> [property_name(each, "Film") for each in ("IMDB Rating", "id", "releaseDate", "%", "From")]
    ['imdb_rating', 'film_id', 'releaseDate', 'column', 'from']
    """
    if column.lower() == ID:
        return "_".join([*(word.lower() for word in words_of(type_name)), ID])
    if _PROPERTY_NAME.fullmatch(column):
        return column
    name = "_".join(word.lower() for word in words_of(column)) or "column"
    return name if not name[0].isdigit() else f"n{name}"


# --- types ----------------------------------------------------------------------------------------


class _Proposal:
    """Turns tables whose kinds, keys and ends are decided into types."""

    def __init__(self, candidates: Sequence[_Candidate]) -> None:
        self._candidates = candidates
        self._by_table = {id(each.table): each for each in candidates}
        self._used: set[tuple[int, int | str]] = set()
        """The columns that `edges_of_nodes` turned into edges."""
        self._names = {
            id(each.table): _property_names(each, "node" if each.ends is None else "edge")
            for each in candidates
        }

    def type_of(self, candidate: _Candidate) -> InferredType:
        """The type for the rows of a table."""
        table, ends = candidate.table, candidate.ends
        names = self._names[id(table)]
        end_keys = {each.column.key for each in ends or ()}
        key_column = candidate.key.column if candidate.key is not None and ends is None else None
        properties = tuple(
            _property(column, names[column.key], table.rows, is_key=column is key_column)
            for column in table.columns.values()
            if column.key not in end_keys and column.left_out is None
        )
        key: tuple[str, ...] = ()
        are_distinct: bool | None = False
        if key_column is not None:
            key = (names[key_column.key],)
        elif ends is not None:
            are_distinct = candidate.references.are_distinct(ends[0].column, ends[1].column)
            key = (SRC, DST) if are_distinct else ()
            if are_distinct is False:
                third = candidate.references.third(ends[0].column, ends[1].column)
                key = () if third is None else (SRC, DST, names[third.key])
        return InferredType(
            "node" if ends is None else "edge",
            table.type_name,
            table.type_name,
            table.shown,
            table.rows,
            properties,
            key,
            None if ends is None else (self._end(ends[0]), self._end(ends[1])),
            tuple((each.name, each.left_out) for each in table.columns.values() if each.left_out),
            tuple(self._notes(candidate, has_key=bool(key), are_distinct=are_distinct)),
        )

    def edges_of_nodes(self) -> Iterator[InferredType]:
        """Edge types for columns of nodes that refer to other nodes."""
        taken = {each.table.type_name.lower() for each in self._candidates}
        for candidate in self._candidates:
            key = candidate.key
            if candidate.ends is not None or key is None:
                continue
            for reference in self._usable(candidate):
                name = _edge_name(reference, candidate.table.type_name)
                if reference.column is key.column or name.lower() in taken:
                    continue
                taken.add(name.lower())
                self._used.add((id(candidate.table), reference.column.key))
                own = InferredEnd(
                    key.column.name,
                    key.column.key,
                    candidate.table.type_name,
                    self._names[id(candidate.table)][key.column.key],
                )
                end = self._end(reference, reference.column.nulls(candidate.table.rows))
                yield InferredType(
                    "edge",
                    name,
                    candidate.table.type_name,
                    candidate.table.shown,
                    candidate.table.rows - end.empty,
                    key=(SRC, DST),
                    ends=(own, end),
                    notes=(_no_edges(end),) if end.empty else (),
                )

    def _usable(self, candidate: _Candidate) -> list[Reference]:
        complete = usable_references(candidate, self._by_table)
        if any(
            candidate.key is not None and each.column is candidate.key.column for each in complete
        ):
            # Rather a table of edges with some missing ends: the user has to decide.
            return complete
        return usable_references(candidate, self._by_table, may_be_empty=True)

    def _end(self, reference: Reference, empty: int = 0) -> InferredEnd:
        key = reference.key
        return InferredEnd(
            reference.column.name,
            reference.column.key,
            key.table.type_name,
            self._names[id(key.table)][key.column.key],
            empty,
        )

    def _notes(
        self, candidate: _Candidate, *, has_key: bool, are_distinct: bool | None
    ) -> Iterator[str]:
        table, ends = candidate.table, candidate.ends
        if ends is not None and not has_key:
            yield (
                "too many rows to find out whether a pair of ends occurs twice"
                if are_distinct is None
                else "no key: a pair of ends occurs more than once, as parallel edges"
            )
        elif not has_key:
            reason = "no likely column is unique and never empty" if table.rows else "no rows"
            yield f"no key: {reason}; ids are made up"
        complete = {each.column.key for each in candidate.references.found if each.is_complete}
        for each in candidate.references.found:
            target = self._by_table[id(each.key.table)]
            if target.ends is not None or target.key is not each.key:
                continue
            about = f"column {quoted(each.column.name)} names rows of {target.table.type_name}"
            if each.is_near and each.column.key not in complete:
                yield f"{about}, but for values such as {quoted(each.missing or '')}"
            nulls = each.column.nulls(table.rows)
            if each.is_complete and nulls and (id(table), each.column.key) not in self._used:
                yield f"{about}, but is empty in {counted(nulls, 'row')}, so it gives no edges"


def _no_edges(end: InferredEnd) -> str:
    return f"no edges for {counted(end.empty, 'row')} with an empty {quoted(end.column)}"


def _edge_name(reference: Reference, owner: str) -> str:
    words = [word for word in words_of(reference.column.name) if word.lower() not in _KEY_WORDS]
    name = "".join(word[0].upper() + word[1:].lower() for word in words)
    return owner + (name or reference.key.table.type_name)


def _property(column: InferredColumn, name: str, rows: int, *, is_key: bool) -> InferredProperty:
    notes: list[str] = []
    type = column.final_type(rows)
    values = None if is_key else column.enum_values()
    if name != column.name:
        notes.append(f"column {quoted(column.name)}")
    if is_key:
        notes.append(f"unique in {counted(rows, 'row')}")
    elif values is not None:
        type = replace(type, enum_values=values)
        notes.append(f"{len(values)} different values")
    nulls = column.nulls(rows)
    if rows and nulls == rows:
        notes.append("always empty")
    elif nulls:
        notes.append(f"{nulls:,} of {rows:,} empty")
    if column.odd_value is not None:
        notes.append(f"text because of values such as {quoted(column.odd_value)}")
    if type.is_vector:
        notes.append("lists of one length; components are kept as F32")
    return InferredProperty(name, column.name, column.key, type, tuple(notes))


def counted(number: int, noun: str) -> str:
    """A number with its noun: `1 row`, `3,376 rows`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def quoted(text: str) -> str:
    """A name or a value in a sentence, shortened if it is long."""
    return f"'{text if len(text) <= _QUOTED_MAX else text[: _QUOTED_MAX - 1] + '…'}'"
