"""What records claim about each other: the checks that concern more than one of them.

Every such rule is about keys, and how often they are claimed:

=======  ===========================  ============================================================
rule     key                          broken when
=======  ===========================  ============================================================
entity   the id of a node or edge     two records have it; an append meets a committed one; an edge
                                      ends there and nobody has it
unique   the values of a group        two records have them; a record and a committed entity do
degree   the source of an edge        it has, or is left with, too many or too few edges
=======  ===========================  ============================================================
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

from omnigraph.loading.records.envelope import TableType
from omnigraph.model.arrow import DST, ID, SRC
from omnigraph.model.receipts import LoadMode
from omnigraph.model.types import Scalar, ValueType
from omnigraph.schema.catalog import Cardinality, Catalog, EdgeType, NodeType

RuleKind = Literal["entity", "unique", "degree"]
Role = Literal["new", "old", "end", "bad", "raw", "was"]
"""Who has a key:

===  ===============================================================================================
new  a row that is written
old  a committed row that stays
end  an edge that ends there
bad  a record that was refused
raw  a record of an upsert in which records repeat each other, as it was read
was  a committed row that an upsert replaces
===  ===============================================================================================
"""

ROLES: tuple[Role, ...] = get_args(Role)

_TEXT = ValueType(Scalar.STRING)


@dataclass(frozen=True, slots=True)
class Rule:
    """One thing that is counted."""

    number: int
    kind: RuleKind
    table_key: str
    """The type whose keys these are."""
    columns: tuple[str, ...] = ()
    """Of a unique group, in the order messages print them."""
    cardinality: Cardinality | None = None
    refuses_existing: bool = False
    """Whether a record may not have the key of a committed entity."""
    has_raw: bool = False
    """Whether records are judged as they were read, before those of one id were folded."""
    is_settled: bool = False
    """Whether its keys have been held against each other already: only ends are left."""


@dataclass(frozen=True, slots=True)
class Claim:
    """Which columns of a table claim keys of a rule."""

    rule: int
    role: Role
    columns: tuple[str, ...]
    types: tuple[ValueType, ...]
    member: str
    """What messages call it: `Type.column`."""
    skip_minted: bool = False
    """Ids that were minted for this load need no check: nobody else has them."""


@dataclass(frozen=True, slots=True)
class CheckPlan:
    """Every rule of a load, and who has a say in it."""

    rules: tuple[Rule, ...]
    written: Mapping[str, tuple[Claim, ...]]
    """Claims of the records, by type key."""
    committed: Mapping[str, tuple[Claim, ...]]
    """Claims of what the graph has already."""
    raw: Mapping[str, tuple[Claim, ...]] = field(default_factory=dict)
    """Claims of records before those of one id were folded."""


def plan_checks(
    catalog: Catalog,
    mode: LoadMode,
    written: Sequence[str],
    replaced: Sequence[str],
    is_empty: Callable[[str], bool],
    *,
    named: Iterable[str],
    folded: Iterable[str] = (),
) -> CheckPlan:
    """The rules that records of the types ``written`` can break.

    ``replaced`` are the types that lose their committed rows; ``is_empty`` says which types have
    none. ``named`` are the types of which a record has an id or a key: all others got ids that
    nobody has. Of an upsert, ``folded`` are the types in which several records had one id.
    """
    return _Planner(catalog, mode, written, replaced, is_empty, named=named, folded=folded).plan()


class _Planner:
    def __init__(
        self,
        catalog: Catalog,
        mode: LoadMode,
        written: Sequence[str],
        replaced: Sequence[str],
        is_empty: Callable[[str], bool],
        *,
        named: Iterable[str],
        folded: Iterable[str],
    ) -> None:
        self._catalog = catalog
        self._is_append = mode == "append"
        self._is_merge = mode == "merge"
        self._folded = set(folded)
        self._written_keys = set(written)
        self._named = self._written_keys & set(named)
        self._replaced = set(replaced)
        self._is_empty = is_empty
        self._rules: list[Rule] = []
        self._written: dict[str, list[Claim]] = {}
        self._committed: dict[str, list[Claim]] = {}
        self._raw: dict[str, list[Claim]] = {}

    def plan(self) -> CheckPlan:
        nodes = [self._catalog.nodes[name] for name in sorted(self._catalog.nodes)]
        edges = [self._catalog.edges[name] for name in sorted(self._catalog.edges)]
        types: list[TableType] = [*nodes, *edges]
        for type in types:
            self._entities(type, edges if isinstance(type, NodeType) else [])
        for type in types:
            if type.table_key in self._written_keys:
                self._unique(type)
        for edge in edges:
            if edge.table_key in self._written_keys and edge.cardinality != Cardinality():
                rule = self._rule("degree", edge, cardinality=edge.cardinality)
                self._claim(edge, rule, "new", (SRC,))
                self._claim_committed(edge, rule, (SRC,))
                if self._is_merge:
                    # A source that an edge was taken from may be left with too few.
                    self._claim_committed(edge, rule, (SRC,), role="was")
        return CheckPlan(
            tuple(self._rules),
            {key: tuple(claims) for key, claims in self._written.items()},
            {key: tuple(claims) for key, claims in self._committed.items()},
            {key: tuple(claims) for key, claims in self._raw.items()},
        )

    def _entities(self, type: TableType, edges: Iterable[EdgeType]) -> None:
        key = type.table_key
        ends = [
            (edge, column)
            for edge in edges
            for column, node in ((SRC, edge.source), (DST, edge.target))
            if node == type.name and self._may_dangle(edge, key)
        ]
        # An upsert has one row for each id; but records may not repeat a key they spell out.
        is_repeated = isinstance(type, NodeType) and bool(type.key) and key in self._folded
        is_settled = not is_repeated and (self._is_merge or key not in self._named)
        if not ends and is_settled:
            return
        rule = self._rule(
            "entity",
            type,
            refuses_existing=self._is_append,
            has_raw=is_repeated,
            is_settled=is_settled,
        )
        if is_repeated:
            self._claim(type, rule, "raw", (ID,), skip_minted=True)
        if key in self._named:
            self._claim(type, rule, "new", (ID,), skip_minted=True)
        self._claim_committed(type, rule, (ID,))
        for edge, column in ends:
            if edge.table_key in self._written_keys:
                self._claim(edge, rule, "end", (column,))
            elif not self._is_empty(edge.table_key):
                self._claim(edge, rule, "end", (column,), committed=True)

    def _may_dangle(self, edge: EdgeType, node_key: str) -> bool:
        """Whether edges of a type may have lost a node: they are new, or nodes were taken away."""
        if edge.table_key in self._written_keys:
            return True
        return node_key in self._replaced and edge.table_key not in self._replaced

    def _unique(self, type: TableType) -> None:
        key = tuple(sorted(type.key)) if isinstance(type, NodeType) else ()
        for columns in sorted({tuple(sorted(group)) for group in type.unique} - {key}):
            has_raw = type.table_key in self._folded
            rule = self._rule(
                "unique", type, columns=columns, refuses_existing=True, has_raw=has_raw
            )
            if has_raw:
                self._claim(type, rule, "raw", columns)
            self._claim(type, rule, "new", columns)
            self._claim_committed(type, rule, columns)

    def _rule(self, kind: RuleKind, type: TableType, **more: object) -> Rule:
        rule = Rule(len(self._rules), kind, type.table_key, **more)  # type: ignore[arg-type]
        self._rules.append(rule)
        return rule

    def _claim_committed(
        self, type: TableType, rule: Rule, columns: tuple[str, ...], *, role: Role = "old"
    ) -> None:
        if type.table_key not in self._replaced and not self._is_empty(type.table_key):
            self._claim(type, rule, role, columns, committed=True)

    def _claim(
        self,
        type: TableType,
        rule: Rule,
        role: Role,
        columns: tuple[str, ...],
        *,
        skip_minted: bool = False,
        committed: bool = False,
    ) -> None:
        types = tuple(
            type.properties[name].type if name in type.properties else _TEXT for name in columns
        )
        written = self._raw if role == "raw" else self._written
        claims = self._committed if committed else written
        claims.setdefault(type.table_key, []).append(
            Claim(rule.number, role, columns, types, f"{type.name}.{columns[0]}", skip_minted)
        )
