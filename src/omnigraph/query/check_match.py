"""Type-checks the clauses of a match block and collects them, still unordered."""

from __future__ import annotations

from collections.abc import Set
from copy import deepcopy
from typing import assert_never

from omnigraph.model.records import dataclass
from omnigraph.query import expressions as ex
from omnigraph.query.check_return import check_block
from omnigraph.query.lower import CheckedBlock, CheckedWeight, retype
from omnigraph.query.operands import (
    BoundAs,
    CheckBlock,
    Context,
    EdgeVariable,
    NodeVariable,
    Operands,
    PathVariable,
    ValueVariable,
    VariableScope,
    describe,
    property_value,
    type_value,
)
from omnigraph.query.plan import (
    HOPS_MAX,
    ComputedWeight,
    Direction,
    Expand,
    Pattern,
    Stage,
    Unnest,
    value_variable,
)
from omnigraph.query.predicates import check_filter, check_null_test, check_pair
from omnigraph.schema.catalog import EdgeType, InterfaceType, NodeType
from omnigraph.syntax import query_ast as ast
from omnigraph.syntax.suggest import did_you_mean
from omnigraph.syntax.tokens import Span

_ANONYMOUS = ast.Variable(ast.ANONYMOUS, Span(0, 0))
"""The end of an edge that a weight does not name."""


@dataclass(frozen=True, slots=True)
class CheckedMatch:
    """The checked clauses of a match, and the variables that are bound after it."""

    block: CheckedBlock
    scope: VariableScope
    check_block: CheckBlock
    """Checks a block that is read after the match."""


def check_match(
    clauses: tuple[ast.Clause, ...], context: Context, stage: Stage | None = None
) -> CheckedMatch:
    """Check the clauses of a match."""
    scope = VariableScope()
    for node in () if stage is None else stage.nodes:
        catalog = context.catalog
        node_type = catalog.nodes.get(node.type_name) or catalog.interfaces[node.type_name]
        scope.own[node.name] = NodeVariable(node_type, node.optional)
    checker = _BlockChecker(context, scope, _FreshNames())
    block = checker.check(clauses)
    block.stage = stage
    return CheckedMatch(block, scope, checker.check_block)


@dataclass(frozen=True, slots=True)
class _Bounds:
    """The bounds of a hop; see the fields of `Expand`."""

    minimum: int
    maximum: int
    minimum_from: ex.ParameterValue | None = None
    maximum_from: ex.ParameterValue | None = None


class _FreshNames:
    """Names for `$_`, which no other variable can have, and numbers for blocks with a value."""

    def __init__(self) -> None:
        self._used = 0
        self._blocks = 0

    def next(self) -> str:
        self._used += 1
        return f"_#{self._used}"

    def next_block(self) -> int:
        self._blocks += 1
        return self._blocks


class _BlockChecker:
    """Checks one block from top to bottom."""

    def __init__(
        self,
        context: Context,
        scope: VariableScope,
        fresh: _FreshNames,
        *,
        shares_blocks: bool = False,
    ) -> None:
        self._shared: dict[str, ex.BoundValue | ex.RecordList] | None = (
            {} if shares_blocks else None
        )
        """The values of blocks by source text, where blocks of the same text are one block."""
        self._context = context
        self._scope = scope
        self._fresh = fresh
        self._operands = Operands(context, scope, block=self.check_block)
        self._block = CheckedBlock()

    def check(self, clauses: tuple[ast.Clause, ...]) -> CheckedBlock:
        for clause in clauses:
            match clause:
                case ast.Binding():
                    self._binding(clause)
                case ast.Hop():
                    self._hop(clause)
                case ast.Filter(left=ast.BlockValue(function="exists", items=()) as tested) if (
                    wanted := _expected_existence(clause)
                ) is not None:
                    inner = self._inner(tested.clauses)[0]
                    if wanted:
                        self._block.disjunctions.append((inner,))
                    else:
                        self._block.exclusions.append(inner)
                case ast.Filter():
                    self._block.predicates.append(check_filter(clause, self._operands))
                case ast.NullTest():
                    self._block.predicates.append(check_null_test(clause, self._operands))
                case ast.TypeTest():
                    self._type_test(clause)
                case ast.Unnest():
                    self._unnest(clause)
                case ast.Not():
                    self._not(clause)
                case ast.Any():
                    several = tuple(self._inner(one)[0] for one in clause.alternatives)
                    self._block.disjunctions.append(several)
                case ast.Optional():
                    block, scope = self._inner(clause.clauses)
                    self._block.optionals.append((block, tuple(scope.own)))
                    self._scope.adopt_optional(scope)
                case _:
                    assert_never(clause)
        return self._block

    def _inner(self, clauses: tuple[ast.Clause, ...]) -> tuple[CheckedBlock, VariableScope]:
        scope = VariableScope(outer=self._scope)
        return _BlockChecker(self._context, scope, self._fresh).check(clauses), scope

    def check_block(self, node: ast.BlockValue) -> ex.BoundValue | ex.RecordList:
        """Check a block that has a value for each row of this one."""
        text = " ".join(self._context.source.text[node.span.start : node.span.end].split())
        if self._shared is not None and text in self._shared:
            return self._shared[text]
        scope = VariableScope(outer=self._scope)
        inner = _BlockChecker(self._context, scope, self._fresh)
        block = inner.check(node.clauses)
        operands = Operands(self._context, scope, alias_code="T25", block=inner.check_block)
        computed, value = check_block(node, self._fresh.next_block(), block, operands)
        self._block.computed.append(computed)
        if self._shared is not None:
            self._shared[text] = value
        return value

    def _not(self, clause: ast.Not) -> None:
        outer = {*self._scope.names(), *(each.variable for each in self._context.values.values())}
        parameters = self._context.parameters.keys()
        if not any(outer & _mentions(inner, parameters) for inner in clause.clauses):
            raise self._context.error(
                "T9",
                "`not { … }` must mention a variable bound outside of it",
                clause.span,
                "without one it would keep or drop every row alike",
            )
        self._block.exclusions.append(self._inner(clause.clauses)[0])

    def _unnest(self, clause: ast.Unnest) -> None:
        several = self._operands.value(clause.items)
        if not several.type.is_list or several.type.is_blob:
            raise self._context.error(
                "T7", f"{describe(clause.items)} is a {several.type}, not a list", clause.items.span
            )
        if clause.variable.is_anonymous:
            raise self._context.error(
                "T23", "the item of a list needs a name", clause.variable.span
            )
        bound = ValueVariable(clause.variable.name, several.type.item)
        self._bind_fresh(clause.variable, bound)
        self._block.unnests.append(Unnest(bound.name, several, bound.value.type))

    # --- bindings ---------------------------------------------------------------------------------

    def _binding(self, clause: ast.Binding) -> None:
        node_type = self._node_type(clause.type_name, clause.type_span)
        if clause.variable.is_anonymous:
            raise self._context.error(
                None,
                "`$_` cannot be bound to a type",
                clause.variable.span,
                "give the variable a name",
            )
        bound = self._bind_node(clause.variable, node_type)
        if bound.optional:
            # An outer variable may be null; a binding needs a node.
            found = ex.EntityId(clause.variable.name, ex.STRING.with_nullable(True))
            self._block.predicates.append(ex.IsNull(found, negated=True))
        for pair in clause.pairs:
            self._block.predicates.append(
                check_pair(clause.variable.name, bound, pair, self._operands)
            )

    def _node_type(self, name: str, span: Span) -> NodeType | InterfaceType:
        """The node type or interface of this name, or T1."""
        catalog = self._context.catalog
        found = catalog.nodes.get(name) or catalog.interfaces.get(name)
        if found is None:
            if name in catalog.edges:
                hint: str | None = (
                    "it is an edge type; traverse it with a hop, such as `$a word $b`"
                )
            else:
                hint = did_you_mean(name, [*catalog.nodes, *catalog.interfaces])
            raise self._context.error("T1", f"unknown node type `{name}`", span, hint)
        return found

    def _type_test(self, clause: ast.TypeTest) -> None:
        """Check `$x is Type`. In the block that binds `$x`, it binds `$x` to that type.

        In other blocks it is a condition, and the type of `$x` stays the same.
        """
        name = clause.variable.name
        if clause.variable.is_anonymous or self._scope.lookup(name) is None:
            raise self._operands.unbound(clause.variable, "T6")
        bound = self._endpoint(clause.variable)
        assert bound is not None
        tested = self._node_type(clause.type_name, clause.type_span)
        catalog = self._context.catalog
        wanted = {node.name for node in catalog.node_types(tested.name)}
        known = {node.name for node in catalog.node_types(bound.type.name)}
        if not known & wanted:
            raise self._context.error(
                "T5",
                f"`${name}` is a {bound.type.name}, and never a {tested.name}",
                clause.type_span,
                did_you_mean(clause.type_name, sorted(known)),
            )
        if not clause.negated and name in self._block.nodes and isinstance(tested, NodeType):
            self._scope.own[name] = NodeVariable(tested)
            retype(self._block, name, tested.name)
            return
        value = type_value(name, bound)
        if clause.negated:
            self._block.predicates += [
                ex.Compare("!=", value, ex.Constant(each, ex.STRING)) for each in sorted(wanted)
            ]
        else:
            names = ex.Constant(tuple(sorted(wanted)), ex.STRINGS)
            self._block.predicates.append(ex.ListContains(names, value))

    def _bind_node(
        self, variable: ast.Variable, node_type: NodeType | InterfaceType
    ) -> NodeVariable:
        """Bind a node variable, or combine with its earlier binding."""
        bound = self._endpoint(variable)
        if bound is None:
            bound = NodeVariable(node_type)
            self._scope.own[variable.name] = bound
            self._block.nodes[variable.name] = node_type.name
        elif bound.type.name != node_type.name:
            raise self._context.error(
                None,
                f"`${variable.name}` is already bound to {bound.type.name}, not {node_type.name}",
                variable.span,
                f"write `${variable.name} is {node_type.name}` to keep only these"
                if isinstance(bound.type, InterfaceType)
                else None,
            )
        return bound

    def _endpoint(self, variable: ast.Variable) -> NodeVariable | None:
        """The node a variable is bound to; an edge, a path or an optional node is an error."""
        if variable.is_anonymous:
            return None
        bound = self._scope.lookup(variable.name)
        if isinstance(bound, ValueVariable):
            raise self._operands.no_entity(variable, "T23")
        if isinstance(bound, EdgeVariable | PathVariable):
            what = "an edge" if isinstance(bound, EdgeVariable) else "a path"
            raise self._context.error(
                "T23", f"`${variable.name}` is {what}, not a node", variable.span
            )
        if bound is not None and bound.optional and variable.name in self._scope.own:
            raise self._context.error(
                "T6",
                f"`${variable.name}` is only bound inside `optional`",
                variable.span,
                "put this clause into that block, or bind the variable before it",
            )
        return bound

    # --- hops -------------------------------------------------------------------------------------

    def _hop(self, clause: ast.Hop) -> None:
        edge = self._edge(clause)
        left, right = self._endpoint(clause.left), self._endpoint(clause.right)
        direction, *ends = self._orient(clause, edge, left, right)
        bounds = self._bounds(clause)
        maximum = bounds.maximum
        source = self._bind_end(clause.left, ends[0], left)
        target = self._bind_end(clause.right, ends[1], right)
        source_type = ends[0] if left is None else left.type.name
        target_type = ends[1] if right is None else right.type.name
        self._block.hops.append(
            Expand(
                source,
                source_type,
                target,
                target_type,
                edge.name,
                direction,
                bounds.minimum,
                maximum if self._overlap(edge.source, edge.target) else min(maximum, 1),
                self._bind_edge(clause, edge),
                self._bind_path(clause),
                path_kind=clause.path_kind,
                weight=self._weight(clause, edge, direction, (ends[0], ends[1])),
                ends=None if ends == [source_type, target_type] else (ends[0], ends[1]),
                minimum_from=bounds.minimum_from,
                maximum_from=bounds.maximum_from,
            )
        )

    def _edge(self, clause: ast.Hop) -> EdgeType:
        edge = self._context.catalog.edge_named(clause.edge_word)
        if edge is None:
            words = [name[:1].lower() + name[1:] for name in self._context.catalog.edges]
            raise self._context.error(
                "T4",
                f"unknown edge `{clause.edge_word}`",
                clause.edge_span,
                did_you_mean(clause.edge_word, words),
            )
        if clause.undirected and edge.source != edge.target:
            raise self._context.error(
                "T22",
                f"`<{clause.edge_word}>` needs one type at both ends, but {edge.name} goes from "
                f"{edge.source} to {edge.target}",
                clause.edge_span,
                f"write `{clause.edge_word}` without the angle brackets",
            )
        return edge

    def _orient(
        self,
        clause: ast.Hop,
        edge: EdgeType,
        left: NodeVariable | None,
        right: NodeVariable | None,
    ) -> tuple[Direction, str, str]:
        """The direction and declared end types that fit the ends of known type; T5 if none fits.

        If an interface makes both directions fit, the direction whose ends are exactly the types of
        the variables is chosen, otherwise the one of the edge type.
        """
        outgoing: tuple[Direction, str, str] = ("out", edge.source, edge.target)
        incoming: tuple[Direction, str, str] = ("in", edge.target, edge.source)
        is_loop = clause.left.name == clause.right.name and not clause.left.is_anonymous
        for fits in (_is_same, self._overlap):
            for direction, source_type, target_type in (outgoing, incoming):
                fits_left = left is None or fits(left.type.name, source_type)
                fits_right = right is None or fits(right.type.name, target_type)
                is_both = left is None and source_type != target_type
                if fits_left and fits_right and not (is_loop and is_both):
                    return ("both" if clause.undirected else direction), source_type, target_type
        left_is_wrong = left is not None and not any(
            self._overlap(left.type.name, end) for end in (edge.source, edge.target)
        )
        variable, bound = (
            (clause.left, left) if left_is_wrong or right is None else (clause.right, right)
        )
        shown = f"is a {bound.type.name}" if bound else "would be both"
        raise self._context.error(
            "T5",
            f"edge {edge.name} goes from {edge.source} to {edge.target}; "
            f"`${variable.name}` {shown}",
            variable.span,
        )

    def _bounds(self, clause: ast.Hop) -> _Bounds:
        written = clause.bounds
        if written is None:
            return _Bounds(1, 1)
        low, high = written.minimum, written.maximum
        if isinstance(low, int) and isinstance(high, int) and high < low:
            raise self._context.error(
                "T15",
                f"the upper bound {high} is below the lower bound {low}",
                written.span,
                "write bounds as `{1,3}`",
            )
        return _Bounds(
            low if isinstance(low, int) else 0,
            high if isinstance(high, int) else HOPS_MAX,
            self._bound_parameter(low) if isinstance(low, ast.Variable) else None,
            self._bound_parameter(high) if isinstance(high, ast.Variable) else None,
        )

    def _bound_parameter(self, variable: ast.Variable) -> ex.ParameterValue:
        declared = self._context.parameter(variable)
        type = declared.type
        if not type.scalar.is_integer or not type.is_plain_scalar or type.nullable:
            raise self._context.error(
                "T15",
                f"`${variable.name}` is a {type}; the bound of a hop is an integer and never null",
                variable.span,
                f"declare it as `${variable.name}: I32`",
            )
        return ex.ParameterValue(variable.name, type)

    def _overlap(self, left: str, right: str) -> bool:
        """Whether two node types or interfaces have a node type in common."""
        catalog = self._context.catalog
        if left in catalog.nodes and right in catalog.nodes:
            return left == right
        others = {node.name for node in catalog.node_types(right)}
        return any(node.name in others for node in catalog.node_types(left))

    def _bind_end(self, variable: ast.Variable, type_name: str, bound: NodeVariable | None) -> str:
        """Bind an end of a hop; an end that is already bound keeps its type."""
        if variable.is_anonymous:
            name = self._fresh.next()
            self._block.nodes[name] = type_name
            return name
        catalog = self._context.catalog
        node_type = catalog.nodes.get(type_name) or catalog.interfaces[type_name]
        self._bind_node(variable, node_type if bound is None else bound.type)
        return variable.name

    def _bind_edge(self, clause: ast.Hop, edge: EdgeType) -> str | None:
        variable = clause.edge_variable
        if variable is None or variable.is_anonymous or clause.path_kind == "cheapest":
            return None
        bounds = clause.bounds
        if bounds is not None and (bounds.minimum, bounds.maximum) != (1, 1):
            raise self._context.error(
                "T23",
                f"edge binding `${variable.name}` stands for one edge and allows no bounds",
                bounds.span,
                "use `via $path` to see the nodes along the way",
            )
        return self._bind_fresh(variable, EdgeVariable(edge))

    def _bind_path(self, clause: ast.Hop) -> str | None:
        variable = clause.path_variable
        if variable is None:
            return None
        binds_edge = clause.edge_variable is not None and not clause.edge_variable.is_anonymous
        if variable.is_anonymous or (binds_edge and clause.path_kind != "cheapest"):
            raise self._context.error(
                "T23",
                "a path needs a name of its own and a hop without an edge binding",
                variable.span,
            )
        return self._bind_fresh(variable, PathVariable(kind=clause.path_kind))

    def _weight(
        self, clause: ast.Hop, edge: EdgeType, direction: Direction, ends: tuple[str, str]
    ) -> ex.PropertyValue | None:
        """The property that a cheapest path adds up, if the weight is a property of each edge.

        Any other weight is computed by a block of its own.
        """
        weight, path = clause.path_weight, clause.path_variable
        if weight is None or path is None:
            return None
        if isinstance(weight, ast.PropertyRef) and clause.path_step is None:
            return self._stored_weight(clause, edge, weight)
        self._require_any_length(clause)
        self._block.weights[path.name] = self._computed_weight(clause, edge, direction, ends)
        return None

    def _stored_weight(
        self, clause: ast.Hop, edge: EdgeType, weight: ast.PropertyRef
    ) -> ex.PropertyValue:
        """A weight that is a numeric property of the edge, which may be null."""
        context, named = self._context, clause.edge_variable
        if named is None or named.name != weight.variable.name or named.is_anonymous:
            raise context.error(
                "T23",
                f"`${weight.variable.name}` does not name the edges of this hop",
                weight.variable.span,
                f"write `${clause.left.name} ${weight.variable.name}:{clause.edge_word}{{1,}} "
                f"${clause.right.name} via cheapest …`",
            )
        self._require_fresh(named)
        self._require_any_length(clause)
        bound = EdgeVariable(edge)
        declared = edge.properties.get(weight.name)
        if declared is None:
            raise self._operands.unknown_property(
                "T6", bound, weight.name, weight.name_span, named.name
            )
        if not declared.type.is_numeric:
            raise context.error(
                "T7", f"{describe(weight)} is a {declared.type}, not a number", weight.span
            )
        return property_value(named.name, bound, declared)

    def _require_any_length(self, clause: ast.Hop) -> None:
        bounds = clause.bounds
        if bounds is None or bounds.maximum is not None or bounds.minimum not in (0, 1):
            raise self._context.error(
                "T15",
                "a cheapest path may have any number of edges",
                clause.edge_span if bounds is None else bounds.span,
                "write the bounds as `{1,}`, or `{0,}` for the node itself as well",
            )

    def _computed_weight(
        self, clause: ast.Hop, edge: EdgeType, direction: Direction, ends: tuple[str, str]
    ) -> CheckedWeight:
        """A weight that reads the edge and its ends, and blocks that start from them."""
        assert clause.path_weight is not None
        context, fresh = self._context, self._fresh
        inner = _BlockChecker(context, VariableScope(outer=self._scope), fresh, shares_blocks=True)
        names: list[str] = []
        for variable, type_name in zip(clause.path_step or (None, None), ends, strict=True):
            if variable is not None and not variable.is_anonymous:
                inner._require_fresh(variable)
            names.append(inner._bind_end(variable or _ANONYMOUS, type_name, None))
        near, far = names
        named = clause.edge_variable
        edge_name = fresh.next()
        if named is not None and not named.is_anonymous:
            edge_name = inner._bind_fresh(named, EdgeVariable(edge))
        block = inner._block
        block.hops.append(
            Expand(near, ends[0], far, ends[1], edge.name, direction, 1, 1, edge_name)
        )
        value = inner._operands.plain(clause.path_weight)
        if not value.type.is_numeric:
            raise context.error(
                "T7",
                f"{describe(clause.path_weight)} is a {value.type}, not a number",
                clause.path_weight.span,
            )
        # Use a copy: `outer` is cached, and variables may be renamed later.
        read = deepcopy(block).outer | (ex.variables_of(value) - block.introduces)
        if read:
            name = min(read)
            shown = name.removeprefix(".") if name.startswith(".") else f"${name}"
            raise context.error(
                "T6",
                f"the weight of an edge cannot read `{shown}`, which differs from row to row",
                clause.path_weight.span,
                "it reads the edge, both of its ends and parameters",
            )
        weight = ComputedWeight(near, edge_name, far, Pattern(()), value)
        return CheckedWeight(weight, block)

    def _bind_fresh(self, variable: ast.Variable, bound: BoundAs) -> str:
        self._require_fresh(variable)
        self._scope.own[variable.name] = bound
        return variable.name

    def _require_fresh(self, variable: ast.Variable) -> None:
        name = variable.name
        if self._scope.lookup(name) is not None or name in self._context.parameters:
            raise self._context.error(
                "T23",
                f"`${name}` is already in use; an edge, path or item needs a fresh name",
                variable.span,
            )


def _expected_existence(clause: ast.Filter) -> bool | None:
    """Whether an `exists { … }` compared to a literal has to be true; None for other tests."""
    value = clause.right.value if isinstance(clause.right, ast.Literal) else None
    return value if clause.operator == "=" and isinstance(value, bool) else None


def _is_same(left: str, right: str) -> bool:
    return left == right


def _mentions(clause: ast.Clause, parameters: Set[str]) -> set[str]:
    """Variables that a clause mentions directly, without those inside a nested `not`."""
    match clause:
        case ast.Binding() | ast.TypeTest():
            return {clause.variable.name}
        case ast.Hop():
            ends = {clause.left.name, clause.right.name}
            return ends | ({clause.edge_variable.name} if clause.edge_variable else set())
        case ast.Filter():
            return _read_by(clause.left, parameters) | _read_by(clause.right, parameters)
        case ast.NullTest():
            return _read_by(clause.operand, parameters)
        case ast.Unnest():
            return _read_by(clause.items, parameters)
        case ast.Optional():
            return {name for inner in clause.clauses for name in _mentions(inner, parameters)}
        case ast.Any():
            return {
                name
                for one in clause.alternatives
                for inner in one
                for name in _mentions(inner, parameters)
            }
        case ast.Not():
            return set()


def _tested_by(node: ast.Condition, parameters: Set[str]) -> set[str]:
    """Variables that a condition of a conditional reads."""
    match node:
        case ast.BooleanCondition():
            return {name for part in node.operands for name in _tested_by(part, parameters)}
        case ast.NullTest():
            return _read_by(node.operand, parameters)
        case ast.Filter():
            return _read_by(node.left, parameters) | _read_by(node.right, parameters)


def _read_by(node: ast.Expression, parameters: Set[str]) -> set[str]:
    """Variables that an expression reads; a bare name that is also a parameter is the parameter."""
    match node:
        case ast.Variable():
            return {node.name} - parameters
        case ast.PropertyRef() | ast.EntityRef():
            return {node.variable.name}
        case ast.AliasRef():
            return {value_variable(node.name)}
        case ast.Arithmetic():
            return _read_by(node.left, parameters) | _read_by(node.right, parameters)
        case ast.SearchCall() | ast.FunctionCall():
            return {name for part in node.arguments for name in _read_by(part, parameters)}
        case ast.ListItem():
            return _read_by(node.list, parameters) | _read_by(node.index, parameters)
        case ast.Conditional():
            values = [value for _, value in node.cases]
            if node.otherwise is not None:
                values.append(node.otherwise)
            read = {name for value in values for name in _read_by(value, parameters)}
            return read.union(*(_tested_by(test, parameters) for test, _ in node.cases))
        case ast.BlockValue():
            read = {name for clause in node.clauses for name in _mentions(clause, parameters)}
            return read.union(*(_read_by(item.expression, parameters) for item in node.items))
    return set()
