"""The data classes of a prepared plan, which can be run many times.

`prepare.py` creates them. Nothing here depends on data or on parameters, except that the order of
steps may follow the sizes of tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

import pyarrow as pa

from omnigraph.model.records import dataclass
from omnigraph.query import expressions as ex
from omnigraph.query import plan

SearchCall = ex.TextMatch | ex.Highlight | ex.Nearest | ex.Bm25 | ex.Rrf


@dataclass(frozen=True, slots=True)
class VariableInfo:
    """The kind and type of a variable of the match."""

    kind: str
    """`node`, `edge`, `path` or `value`."""
    type_name: str
    """The node or edge type; for a path, the type of its nodes."""
    optional: bool
    typed_ends: Mapping[str, str] = field(default_factory=dict)
    """For an edge with an interface at an end: `src` and `src_type` to `src`, and so for `dst`."""


@dataclass(frozen=True, slots=True)
class PreparedStep:
    """A step with rewritten expressions, and the variables that later steps read."""

    step: plan.Step
    needed: frozenset[str]
    patterns: tuple[PreparedPattern, ...] = ()
    """Inner patterns: of `not`, `any` and `optional`, those a scan is `among`, and the one that
    computes the weight of a hop."""
    anchors: tuple[Anchor, ...] = ()
    """Equalities that an index can look up."""
    residual: tuple[ex.Expression, ...] = ()
    """The predicates that remain to be tested if the id of the node is given."""
    parts: tuple[PreparedStep, ...] = ()
    """For a scan of an interface: the scans of its node types."""
    stage: PreparedRead | None = None
    """For a `Stage`: the read whose rows it binds."""


@dataclass(frozen=True, slots=True)
class PreparedPattern:
    """Steps in the order they run."""

    steps: tuple[PreparedStep, ...]
    reads: frozenset[str]
    """The outer variables that the pattern reads."""
    inside: PreparedInside | None = None
    """For a block: another way to solve it, which may be cheaper."""
    from_one: tuple[PreparedFromOne, ...] = ()
    """For a block that reads two variables: the ways to solve it for the nodes of one of them."""

    @property
    def nodes(self) -> frozenset[str]:
        """The outer nodes that a block reads, by which inside solutions are joined to rows.

        Outer values are left out: they are the same in all rows then.
        """
        return self.reads - self.inside.values if self.inside is not None else self.reads


@dataclass(frozen=True, slots=True)
class PreparedFromOne:
    """A block that is solved for the nodes of one variable and binds the other; see `FromOne`."""

    name: str
    pattern: PreparedPattern
    each_start: float
    each_row: float


@dataclass(frozen=True, slots=True)
class PreparedInside:
    """A block as a match of its own, which binds its outer variables; see `from_inside`."""

    start: PreparedPattern
    """The first scan, and the conditions on its node that read ``values``."""
    rest: PreparedPattern
    each_start: float
    """The expected cost per node that the scan finds."""
    each_row: float
    """The cost of solving the block per outer row."""
    values: frozenset[str] = frozenset()
    """The outer values that the block reads; they have to be the same in every row."""


@dataclass(frozen=True, slots=True)
class PreparedBlock:
    """A block that computes a value per row."""

    step: plan.Compute
    pattern: PreparedPattern

    @property
    def reads(self) -> frozenset[str]:
        """The outer variables it reads; rows with equal bindings have the same value."""
        return self.pattern.reads


@dataclass(frozen=True, slots=True)
class LastHop:
    """A pattern whose solutions are grouped, split at its last hop."""

    before: PreparedPattern
    step: plan.Expand
    after: PreparedPattern
    """The tests after the hop."""
    rest: PreparedPattern
    """The hop and the tests after it."""
    is_counted: bool
    """Whether only the number of destinations is needed."""
    unless: plan.Expand | None = None
    """The only test after the hop, if that is a link that destinations must not have."""


@dataclass(frozen=True, slots=True)
class TreeHop:
    """A hop of a tree-shaped pattern, in the direction away from the root."""

    step: plan.Expand
    """The hop, with the conditions on its target alone."""
    of_edge: tuple[ex.Expression, ...]
    """The conditions on its edge."""
    prepared: PreparedStep
    """The hop with all of its conditions."""


@dataclass(frozen=True, slots=True)
class Tree:
    """A pattern whose hops form a tree and whose solutions are grouped.

    Rows are needed only for the ``core``: the variables that groups or conditions read together,
    and those between them. The branches outside the core are counted.
    """

    root: PreparedStep
    """The scan that binds the root."""
    hops: Mapping[str, TreeHop]
    """The hops by target variable, in the order they run."""
    tests: Mapping[str, PreparedPattern]
    """The tests of a single variable outside the core, by variable."""
    core: tuple[str, ...]
    """The core variables in the order they are bound: the first is nearest to the root."""
    core_pattern: PreparedPattern
    """The hops and tests between variables of the core."""
    carried: Mapping[str, str]
    """The aggregates whose argument is outside the core: aggregate name to the variable it reads.
    An edge variable is outside if one of its ends is."""
    splits: bool
    """Whether aggregates can be merged from parts of the core's rows."""


@dataclass(frozen=True, slots=True)
class Anchor:
    """`property = value` or `property in values`, where the value is the same for all rows."""

    property: str
    type: pa.DataType
    value: ex.Expression
    several: bool


@dataclass(frozen=True, slots=True)
class PreparedRead:
    """A plan ready to be run many times."""

    compiled: plan.ReadPlan
    pattern: PreparedPattern
    variables: dict[str, VariableInfo]
    calls: dict[str, SearchCall]
    """Search calls by the name under which their values are read."""
    searches: tuple[SearchCall, ...]
    """All search calls, the one that ranks included."""
    interfaces: dict[str, tuple[plan.TypeNumber, ...]]
    """The node types of each interface that the plan names."""
    references: dict[str, int]
    """The node types in these interfaces, with their numbers."""
    node_columns: dict[str, dict[str, pa.DataType]]
    edge_columns: dict[str, dict[str, pa.DataType]]
    group_by: plan.GroupBy | None
    columns: tuple[plan.Column, ...]
    having: tuple[ex.Expression, ...]
    order: tuple[plan.SortKey, ...]
    ties: tuple[plan.BoundVariable, ...]
    """Variables whose ids break ties; empty if output columns do, or if nothing is ordered."""
    followed: frozenset[str]
    """The path variables whose nodes are read; of the others only the length is."""
    last_hop: LastHop | None
    """The last hop of a match whose aggregates can be merged from parts."""
    tree: Tree | None
    """The tree of a match whose aggregates can be computed without a row per solution."""
    stage: tuple[plan.Stage, PreparedRead] | None
    """The previous stage, whose rows the match starts from."""
    carried: dict[str, ex.CarriedNode]
    """The columns that hand nodes on to the next stage."""
    blocks: dict[str, PreparedBlock]
    """The blocks that compute a value per row, by the variable of the value."""
    per: plan.LimitPer | None
    is_counted: bool
    """Whether solutions are counted without rows: the steps then keep their order."""
    is_open: bool
    """Whether the way it runs depends on the sizes of tables."""
    edge_types: tuple[str, ...]
    """The edge types of all hops."""


def single_test(pattern: PreparedPattern) -> plan.Expand | None:
    """The step of a pattern that only tests whether two bound nodes are linked."""
    if len(pattern.steps) != 1:
        return None
    step = pattern.steps[0].step
    if not isinstance(step, plan.Expand) or not step.target_is_bound:
        return None
    plain = step.edge_variable is None and step.path_variable is None and not step.predicates
    return step if plain and step.minimum <= step.maximum else None
