"""Solutions of a pattern as a DataFrame, and expressions over them as columns.

A comparison with the same meaning in Spark becomes a Spark expression. Everything else is evaluated
by the kernels of the local engine, in Python workers, on the columns it reads.
"""

from __future__ import annotations

import operator as op
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import reduce
from itertools import count
from typing import Any, TypeAlias

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

from omnigraph.engines.local.prepared import PreparedRead
from omnigraph.engines.spark.types import INTEGERS, literal, spark_type
from omnigraph.engines.spark.workers import Constants, Evaluation
from omnigraph.errors import InternalError
from omnigraph.model.arrow import ID, arrow_type
from omnigraph.model.ids import reference_prefix
from omnigraph.model.records import dataclass
from omnigraph.model.types import Scalar, ValueType
from omnigraph.query import expressions as ex
from omnigraph.query import plan
from omnigraph.query.evaluate import ColumnExpression, evaluate, scalar_operand
from omnigraph.query.plan import TypeNumber
from omnigraph.syntax.query_ast import ComparisonOperator

Key: TypeAlias = tuple[str, str]
"""A variable and an attribute of it: `ID`, a property, a search call, or a part of a path. For a
variable that is bound to values, `ID` stands for the value."""

NODES = "#nodes"
EDGES = "#edges"
COST = "#cost"
PATH_PARTS = {NODES: "array<string>", EDGES: "array<string>", COST: "double"}
"""The attributes of a path, and the Spark types that carry them."""


def keys_read(expression: ex.Expression, calls: Mapping[str, Any]) -> Iterator[Key]:
    """The keys that an expression reads; ``calls`` are the search calls."""
    for part in ex.walk(expression):
        match part:
            case ex.PropertyValue(property=ex.NODE_TYPE | ex.NODE_ID):
                yield part.variable, ID
            case ex.PropertyValue():
                yield part.variable, part.property
            case ex.EntityId() | ex.BoundValue() | ex.CarriedNode():
                yield part.variable, ID
            case ex.PathNodes() | ex.PathLength():
                yield part.variable, NODES
            case ex.PathEdges():
                yield part.variable, EDGES
            case ex.PathCost():
                yield part.variable, COST
            case ex.OutputValue() if part.name in calls:
                yield calls[part.name].variable, part.name


class Names:
    """Names of columns, each used once in a query: Spark compares names without regard to case."""

    def __init__(self) -> None:
        self._numbers = count()

    def new(self) -> str:
        """A name that no other column has."""
        return f"c{next(self._numbers)}"


@dataclass(frozen=True, slots=True)
class Bindings:
    """The solutions so far; without a frame, the one empty solution that a match starts with."""

    frame: DataFrame | None = None
    names: Mapping[Key, str] = field(default_factory=dict)
    times: str | None = None
    """The column with the number of equal solutions per row; None: each row is one."""

    @property
    def rows(self) -> DataFrame:
        """The frame; the match must have begun."""
        if self.frame is None:
            raise InternalError("a pattern begins with a scan")
        return self.frame

    def name(self, variable: str, of: str = ID) -> str:
        """The name of the column of an attribute of a variable."""
        return self.names[variable, of]

    def column(self, variable: str, of: str = ID) -> Column:
        """The column of an attribute of a variable."""
        return F.col(self.name(variable, of))

    def identity(self, variable: str) -> str:
        """The column that identifies what a variable is bound to."""
        return self.names.get((variable, ID)) or self.names[variable, NODES]

    def of(self, variables: Iterable[str]) -> dict[Key, str]:
        """The columns of some variables."""
        wanted = frozenset(variables)
        return {key: name for key, name in self.names.items() if key[0] in wanted}

    def joined(self, frame: DataFrame, names: Mapping[Key, str]) -> Bindings:
        """The solutions with more columns."""
        return replace(self, frame=frame, names={**self.names, **names})


# --- references -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NodeIds:
    """What the `ID` columns of variables hold: ids, or references where an interface mixes types.

    All types that a plan mixes use references, so that nodes are joined and compared the same way
    whether a variable has one type or an interface.
    """

    types: Mapping[str, str]
    """The node type or interface of each node variable."""
    members: Mapping[str, Sequence[TypeNumber]]
    """The node types of each interface."""
    numbers: Mapping[str, int]
    """The numbers of all types that the plan mixes."""

    @classmethod
    def of(cls, prepared: PreparedRead) -> NodeIds:
        """The ids of a plan."""
        nodes = {
            name: info.type_name for name, info in prepared.variables.items() if info.kind == "node"
        }
        return cls(nodes, prepared.compiled.nodes_of, dict(prepared.compiled.references))

    def types_of(self, type_name: str) -> list[str]:
        """The node types of an interface, or the node type itself."""
        members = self.members.get(type_name)
        return [type_name] if members is None else [name for name, _ in members]

    def prefix(self, type_name: str) -> str:
        """The prefix of references to nodes of a type; empty if the type uses ids."""
        number = self.numbers.get(type_name)
        return "" if number is None else reference_prefix(number)

    def is_mixed(self, type_name: str) -> bool:
        """Whether the nodes of a type or an interface use references."""
        return type_name in self.members or type_name in self.numbers

    def identity(self, variable: str, column: Column) -> Column:
        """An `EntityId`: the id, or for an interface the reference."""
        type_name = self.types.get(variable, "")
        return id_of(column) if type_name in self.numbers else column

    def id(self, variable: str, column: Column) -> Column:
        """The id of a node."""
        return id_of(column) if self.is_mixed(self.types.get(variable, "")) else column

    def type(self, variable: str, column: Column) -> Column:
        """The name of the type of a node; null for a null node."""
        type_name = self.types[variable]
        if type_name not in self.members:
            return F.when(column.isNotNull(), F.lit(type_name))
        found: Column = F.lit(None).cast("string")
        for name, number in self.members[type_name]:
            found = F.when(column.startswith(reference_prefix(number)), F.lit(name)).otherwise(
                found
            )
        return found

    def is_of(self, column: Column, declared: str, type_name: str) -> Column | None:
        """Which references of one declared type are of a given type; None if all are."""
        wanted, given = self.types_of(type_name), self.types_of(declared)
        if set(given) <= set(wanted):
            return None
        tests = [column.startswith(self.prefix(name)) for name in wanted]
        return reduce(op.or_, tests) if tests else F.lit(False)

    def stays(self, step: plan.Expand, column: Column) -> Column | None:
        """Where zero steps end at a node of the target type; None if they never do."""
        if set(self.types_of(step.source_type)).isdisjoint(self.types_of(step.target_type)):
            return None
        is_own = self.is_of(column, step.source_type, step.target_type)
        return F.lit(True) if is_own is None else is_own

    def repeats(self, step: plan.Expand) -> bool:
        """Whether a path of this hop may have more than one edge."""
        near, far = (set(self.types_of(name)) for name in step.declared)
        return bool(near & far)


def id_of(reference: Column) -> Column:
    """The id behind the prefix of a reference."""
    return F.regexp_replace(reference, "^[0-9]+:", "")


# --- expressions ----------------------------------------------------------------------------------

arrow_udf: Any = getattr(F, "arrow_udf")  # noqa: B009 - it has no type stub

Leaf: TypeAlias = Callable[[ColumnExpression], Column]

_COMPARE: dict[ComparisonOperator, Callable[[Any, Any], Any]] = {
    "=": op.eq,
    "!=": op.ne,
    "<": op.lt,
    "<=": op.le,
    ">": op.gt,
    ">=": op.ge,
}
_LEAVES = (
    ex.PropertyValue,
    ex.EntityId,
    ex.PathNodes,
    ex.PathLength,
    ex.BoundValue,
    ex.PathEdges,
    ex.PathCost,
    ex.OutputValue,
)


@dataclass(frozen=True, slots=True)
class Values:
    """Expressions as columns of a frame, given the columns of their leaves."""

    constants: Constants
    leaf: Leaf

    def column(self, expression: ex.Expression) -> Column:
        """The values of an expression, in the types that carry them."""
        known = self._by_spark(expression)
        return self._by_worker(expression) if known is None else known

    def all_hold(self, predicates: Iterable[ex.Expression]) -> Column | None:
        """Where all of some predicates are true; None if there are none."""
        columns = [self.column(predicate) for predicate in predicates]
        return reduce(op.and_, columns) if columns else None

    def _by_spark(self, node: ex.Expression) -> Column | None:
        """The Spark expression with the same meaning; None if there is none."""
        match node:
            case (
                ex.PropertyValue()
                | ex.EntityId()
                | ex.PathNodes()
                | ex.PathLength()
                | ex.BoundValue()
                | ex.CarriedNode()
                | ex.PathEdges()
                | ex.PathCost()
                | ex.OutputValue()
            ):
                return self.leaf(node)
            case ex.Constant() | ex.ParameterValue() | ex.CurrentTime():
                parameters, now = self.constants.parameters, self.constants.now
                return literal(scalar_operand(node, parameters, now).as_py(), node.type)
            case ex.IsNull():
                operand = self.column(node.operand)
                return operand.isNotNull() if node.negated else operand.isNull()
            case ex.Combine():
                join = op.and_ if node.operator == "and" else op.or_
                return reduce(join, map(self.column, node.operands))
            case ex.Compare() if _compares_alike(node.left.type, node.right.type):
                left, right = self._by_spark(node.left), self._by_spark(node.right)
                if left is None or right is None:
                    return None
                # A predicate is two-valued: a comparison with null is false.
                return F.coalesce(_COMPARE[node.operator](left, right), F.lit(False))
        return None

    def _by_worker(self, expression: ex.Expression) -> Column:
        leaves = tuple(
            dict.fromkeys(part for part in ex.walk(expression) if isinstance(part, _LEAVES))
        )
        type = arrow_type(expression.type)
        if not leaves:
            value = evaluate(
                expression, _no_row, self.constants.parameters, self.constants.now
            ).cast(type)
            return literal(value.as_py(), expression.type)
        used = {part.name for part in ex.walk(expression) if isinstance(part, ex.ParameterValue)}
        parameters = {name: self.constants.parameters[name] for name in used}
        work = Evaluation(expression, leaves, Constants(parameters, self.constants.now))
        function = arrow_udf(work.function(), spark_type(type))
        if ex.can_fail(expression):
            # Spark must not move it ahead of joins and filters that remove rows.
            function = function.asNondeterministic()
        column: Column = function(*map(self.leaf, leaves))
        return column


def _no_row(leaf: ColumnExpression) -> Any:
    raise InternalError(f"there is no row to read {leaf} from")


def _compares_alike(left: ValueType, right: ValueType) -> bool:
    """Whether Spark compares values of two types as the language does."""
    if not (left.is_plain_scalar and right.is_plain_scalar):
        return False
    if left.scalar in INTEGERS and right.scalar in INTEGERS:
        return True
    exact = (Scalar.STRING, Scalar.BOOL, Scalar.DATE, Scalar.DATETIME)
    return left.scalar == right.scalar and left.scalar in exact


def match_values(
    bindings: Bindings, constants: Constants, calls: Mapping[str, ex.Expression], ids: NodeIds
) -> Values:
    """Expressions over the solutions of a pattern; ``calls`` are read by their names."""

    def leaf(node: ColumnExpression) -> Column:
        match node:
            case ex.PropertyValue(kind="node", property=ex.NODE_TYPE):
                return ids.type(node.variable, bindings.column(node.variable))
            case ex.PropertyValue(kind="node", property=ex.NODE_ID | "id"):
                return ids.id(node.variable, bindings.column(node.variable))
            case ex.PropertyValue():
                return bindings.column(node.variable, node.property)
            case ex.EntityId():
                return ids.identity(node.variable, bindings.column(node.variable))
            case ex.BoundValue() | ex.CarriedNode():
                return bindings.column(node.variable)
            case ex.PathNodes():
                return bindings.column(node.variable, NODES)
            case ex.PathLength():
                nodes = bindings.column(node.variable, NODES)
                return F.when(nodes.isNotNull(), (F.size(nodes) - 1).cast("long"))
            case ex.PathEdges():
                return bindings.column(node.variable, EDGES)
            case ex.PathCost():
                return bindings.column(node.variable, COST)
            case ex.OutputValue():
                call = calls[node.name]
                return call_column(bindings, call, node.name)
        raise InternalError(f"nothing binds {node}")

    return Values(constants, leaf)


def call_column(bindings: Bindings, call: ex.Expression, name: str) -> Column:
    """The value of a search call; a node that an optional match did not find matches nothing."""
    column = bindings.column(call.variable, name)  # type: ignore[union-attr]
    if isinstance(call, ex.TextMatch):
        return F.coalesce(column, F.lit(False))
    return F.coalesce(column, F.lit(0.0)) if isinstance(call, ex.Bm25) else column
