"""Type-checks write queries."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from omnigraph.errors import ValueConversionError
from omnigraph.model.types import Scalar, ValueType
from omnigraph.model.values import assigned_value
from omnigraph.query import expressions as ex
from omnigraph.query import plan
from omnigraph.query.operands import (
    Context,
    EdgeVariable,
    NodeVariable,
    Operands,
    VariableScope,
    comparable,
    describe,
    is_empty_list,
    round_to_match,
)
from omnigraph.query.predicates import literal_hint, require_comparable, require_enum_member
from omnigraph.schema.catalog import EdgeType, NodeType, Property
from omnigraph.syntax import query_ast as ast
from omnigraph.syntax.suggest import did_you_mean
from omnigraph.syntax.tokens import Span

_ENDPOINTS = {"from": "src", "to": "dst"}
"""The pseudo-properties of an edge, and the columns behind them."""


def check_mutation(query: ast.Query, body: ast.WriteBody, context: Context) -> plan.MutationPlan:
    """The plan of a write query."""
    kinds = {isinstance(statement, ast.Delete) for statement in _statements(body.statements)}
    if len(kinds) == 2:
        raise context.error(
            None,
            f"mutation '{query.name}' on the same query mixes inserts/updates and deletes; "
            "split it into one query that inserts and updates and one that deletes",
            query.name_span,
            "to land both together, write them to a branch and merge it",
        )
    checker = _MutationChecker(context)
    return plan.MutationPlan(
        query.name,
        tuple(plan.TypedParameter(p.name, p.type) for p in query.parameters),
        tuple(checker.statement(statement) for statement in body.statements),
        query.description,
        query.instruction,
    )


def _statements(nodes: Iterable[ast.Statement]) -> Iterator[ast.Statement]:
    for node in nodes:
        if isinstance(node, ast.ForEach):
            yield from _statements(node.statements)
        else:
            yield node


def check_where(
    node: ast.Predicate, target: NodeType | EdgeType, context: Context
) -> ex.Expression:
    """A condition on the rows of a type, which may also name the columns `id`, `src` and `dst`."""
    columns: tuple[str, ...] = ("id",)
    if isinstance(target, EdgeType):
        columns = ("id", *context.catalog.end_columns(target))
    return _MutationChecker(context, columns).predicate(node, target)


class _MutationChecker:
    def __init__(
        self,
        context: Context,
        columns: tuple[str, ...] = (),
        scope: VariableScope | None = None,
    ) -> None:
        self._context = context
        self._operands = Operands(context, scope or VariableScope())
        self._columns = columns
        """Columns that a `where` may name in addition to the properties."""

    def statement(self, node: ast.Statement) -> plan.MutationStep:
        """One statement, or a loop with the statements in it."""
        if isinstance(node, ast.ForEach):
            return self._loop(node)
        target = self._target(node)
        if not isinstance(node, ast.Delete) and not node.assignments:
            raise self._context.error(
                "T10", f"nothing is assigned to {target.name}", node.type_span
            )
        match node:
            case ast.Insert() if isinstance(target, NodeType):
                return self._insert_node(node, target)
            case ast.Insert():
                assert isinstance(target, EdgeType)
                return self._insert_edge(node, target)
            case ast.Update():
                return self._update(node, target)
            case ast.Delete():
                predicate = self.predicate(node.where, target)
                if isinstance(target, NodeType):
                    incident = tuple(
                        e.name for e in self._context.catalog.edges_touching(target.name)
                    )
                    return plan.DeleteNodes(target.name, predicate, incident)
                return plan.DeleteEdges(target.name, predicate)

    def _loop(self, node: ast.ForEach) -> plan.ForEach:
        context, name = self._context, node.variable.name
        if name in (*context.parameters, *context.record_lists, *context.records):
            raise context.error("T26", f"`${name}` is a parameter already", node.variable.span)
        if node.variable.is_anonymous:
            raise context.error("T14", "the variable of a loop has a name", node.variable.span)
        record = None
        if isinstance(node.items, ast.Variable) and node.items.name in context.record_lists:
            record = context.record_lists[node.items.name]
            inner = replace(context, records={**context.records, name: record})
            items = node.items.name
        else:
            several = self._list(node.items)
            item = ex.ParameterValue(name, several.type.item)
            inner = replace(context, parameters={**context.parameters, name: item})
            items = several.name
        checker = _MutationChecker(inner)
        return plan.ForEach(name, items, tuple(map(checker.statement, node.statements)))

    def _list(self, node: ast.Variable | ast.PropertyRef) -> ex.ParameterValue:
        """The list that a loop iterates over: a parameter, or a field of a record."""
        if isinstance(node, ast.Variable):
            several: ex.Expression = self._context.parameter(node)
        else:
            several = self._operands.property(node)
        if not isinstance(several, ex.ParameterValue) or not several.type.is_list:
            raise self._context.error(
                "T7", f"{describe(node)} is a {several.type}, not a list", node.span
            )
        return several

    def _target(self, node: ast.Insert | ast.Update | ast.Delete) -> NodeType | EdgeType:
        catalog = self._context.catalog
        target = catalog.nodes.get(node.type_name) or catalog.edges.get(node.type_name)
        if target is None:
            if node.type_name in catalog.interfaces:
                hint: str | None = "it is an interface; name a node type implementing it"
            else:
                hint = did_you_mean(node.type_name, [*catalog.nodes, *catalog.edges])
            raise self._context.error(
                "T10", f"unknown type `{node.type_name}`", node.type_span, hint
            )
        return target

    # --- statements -------------------------------------------------------------------------------

    def _insert_node(self, node: ast.Insert, target: NodeType) -> plan.InsertNode:
        assignments = self._assignments(target, node.assignments)
        self._require_complete(node, target, {a.property for a in assignments})
        return plan.InsertNode(target.name, assignments)

    def _insert_edge(self, node: ast.Insert, target: EdgeType) -> plan.InsertEdge:
        endpoints: dict[str, ex.Expression] = {}
        rest: list[ast.Pair] = []
        for pair in node.assignments:
            if pair.name not in _end_names(target):
                rest.append(pair)
                continue
            if pair.name in endpoints:
                raise self._assigned_twice(pair)
            endpoints[pair.name] = self._endpoint_value(target, pair)
        for name, node_type in (("from", target.source), ("to", target.target)):
            if name not in endpoints:
                raise self._context.error(
                    "T12",
                    f"insert of edge {target.name} must provide required endpoint `{name}`",
                    node.type_span,
                    f"`{name}` is the id of a {node_type}",
                )
        assignments = self._assignments(target, rest)
        self._require_complete(node, target, {a.property for a in assignments})
        return plan.InsertEdge(
            target.name,
            endpoints["from"],
            endpoints["to"],
            assignments,
            endpoints.get("from_type"),
            endpoints.get("to_type"),
        )

    def _update(
        self, node: ast.Update, target: NodeType | EdgeType
    ) -> plan.UpdateNodes | plan.UpdateEdges:
        key = target.key if isinstance(target, NodeType) else target.key_columns
        for pair in node.assignments:
            if isinstance(target, EdgeType) and pair.name in _end_names(target):
                raise self._context.error(
                    "T16",
                    f"cannot update `{pair.name}` of edge {target.name}",
                    pair.name_span,
                    "an edge keeps its ends; delete it and insert another one",
                )
            if pair.name in key:
                raise self._context.error(
                    None,
                    f"cannot update @key property '{pair.name}'",
                    pair.name_span,
                    "the key is the identity of the entity; insert a new one instead",
                )
        assignments = self._computing(node, target)._assignments(target, node.assignments)
        predicate = self.predicate(node.where, target)
        if isinstance(target, EdgeType):
            return plan.UpdateEdges(target.name, assignments, predicate)
        return plan.UpdateNodes(target.name, assignments, predicate)

    def _computing(self, node: ast.Update, target: NodeType | EdgeType) -> _MutationChecker:
        """The checker for values that may be computed from the entity they are assigned to."""
        variable = node.variable
        if variable is None:
            return self
        context = self._context
        if variable.name in (*context.parameters, *context.record_lists, *context.records):
            raise context.error("T26", f"`${variable.name}` is a parameter already", variable.span)
        bound = EdgeVariable(target) if isinstance(target, EdgeType) else NodeVariable(target)
        return _MutationChecker(context, scope=VariableScope(own={variable.name: bound}))

    def _require_complete(
        self, node: ast.Insert, target: NodeType | EdgeType, assigned: set[str]
    ) -> None:
        for declared in target.properties.values():
            if declared.name in assigned or declared.type.nullable or declared.default is not None:
                continue
            # The vector is computed from its source; whether it is stored is checked at run time.
            if declared.embed is not None and declared.embed.source in assigned:
                continue
            raise self._context.error(
                "T12",
                f"insert of {target.name} must provide non-nullable property `{declared.name}`",
                node.type_span,
                f"add `{declared.name}: …` of type {declared.type}",
            )

    # --- assignments ------------------------------------------------------------------------------

    def _assignments(
        self, target: NodeType | EdgeType, pairs: Iterable[ast.Pair]
    ) -> tuple[plan.Assignment, ...]:
        seen: set[str] = set()
        found: list[plan.Assignment] = []
        for pair in pairs:
            declared = self._property(target, pair.name, pair.name_span)
            if pair.name in seen:
                raise self._assigned_twice(pair)
            seen.add(pair.name)
            value = self._assigned_value(target, declared, pair.value)
            by_row = bool(ex.variables_of(value))
            found.append(plan.Assignment(declared.name, declared.type, value, by_row))
        return tuple(found)

    def _assigned_twice(self, pair: ast.Pair) -> Exception:
        return self._context.error("T13", f"`{pair.name}` is assigned twice", pair.name_span)

    def _property(self, target: NodeType | EdgeType, name: str, span: Span) -> Property:
        declared = target.properties.get(name)
        if declared is None:
            ends = _end_names(target) if isinstance(target, EdgeType) else ()
            known = [*target.properties, *ends]
            raise self._context.error(
                "T11", f"{target.name} has no property `{name}`", span, did_you_mean(name, known)
            )
        return declared

    def _assigned_value(
        self, target: NodeType | EdgeType, declared: Property, node: ast.Expression
    ) -> ex.Expression:
        where = f"{target.name}.{declared.name}"
        match node:
            case ast.NullLiteral():
                if not declared.type.nullable:
                    raise self._context.error(
                        "T3", f"{where} is {declared.type} and cannot be null", node.span
                    )
                return ex.Constant(None, declared.type)
            case ast.Variable():
                return self._assigned_from(where, declared, node, self._context.parameter(node))
            case ast.Now():
                if declared.type.scalar is not Scalar.DATETIME or declared.type.is_list:
                    raise self._context.error(
                        "T7", f"`now()` is a DateTime, but {where} is {declared.type}", node.span
                    )
                return ex.CurrentTime()
            case ast.PropertyRef() if (field := self._context.record_field(node)) is not None:
                return self._assigned_from(where, declared, node, field)
        typed = self._operands.value(node)
        if not isinstance(typed, ex.Constant):
            return self._assigned_from(where, declared, node, typed)
        try:
            fitted = assigned_value(typed.value, declared.type, declared.name)
        except ValueConversionError as misfit:
            raise self._context.error(
                "T3",
                f"{where} is {declared.type}: {misfit.message}",
                node.span,
                literal_hint(declared.type),
            ) from None
        constant = ex.Constant(tuple(fitted) if isinstance(fitted, list) else fitted, declared.type)
        require_enum_member(declared, constant, where, node.span, self._operands)
        return constant

    def _assigned_from(
        self, where: str, declared: Property, node: ast.Expression, value: ex.Expression
    ) -> ex.Expression:
        if not _assignable(value.type, declared.type):
            what = f"parameter `${node.name}`" if isinstance(node, ast.Variable) else describe(node)
            raise self._context.error(
                "T7", f"{what} is {value.type}, but {where} is {declared.type}", node.span
            )
        return value

    def _endpoint_value(self, target: EdgeType, pair: ast.Pair) -> ex.Expression:
        node = pair.value
        typed: ex.Expression = ex.Constant(None, ex.STRINGS)
        if isinstance(node, ast.Variable):
            typed = self._context.parameter(node)
        elif not isinstance(node, ast.NullLiteral | ast.Now | ast.ListLiteral):
            typed = self._operands.value(node)
        found = self._as_end(target, pair.name, typed)
        if found is None or found.type.is_list:
            raise self._context.error(
                "T3" if isinstance(node, ast.Literal | ast.ListLiteral | ast.NullLiteral) else "T7",
                f"`{pair.name}` of {target.name} is {self._end_described(target, pair.name)}",
                node.span,
            )
        return found

    def _as_end(self, target: EdgeType, name: str, given: ex.Expression) -> ex.Expression | None:
        """A value, or a list of values, as the id of a node; None if it cannot be one.

        A text is the id itself. A value of another type is the key of the node.
        """
        if given.type.scalar is Scalar.STRING:
            return given
        key = self._end_key(target, name)
        if key is None or not _assignable(given.type.item, key):
            return None
        return ex.KeyId(given, key, ex.STRINGS if given.type.is_list else ex.STRING)

    def _end_key(self, target: EdgeType, name: str) -> ValueType | None:
        """The type of the key at an end, if all node types there have one of that type."""
        if name not in _ENDPOINTS:
            return None
        end = target.source if name == "from" else target.target
        types = [
            tuple(node.properties[key].type for key in node.key)
            for node in self._context.catalog.node_types(end)
        ]
        if len(set(types)) != 1 or len(types[0]) != 1:
            return None
        return types[0][0]

    def _end_described(self, target: EdgeType, name: str) -> str:
        if name not in _ENDPOINTS:
            return "a type: a String"
        key = self._end_key(target, name)
        if key is None or key.scalar is Scalar.STRING:
            return "the id of a node: a String"
        return f"the key of a node, a {key}, or its id, a String"

    # --- where ------------------------------------------------------------------------------------

    def predicate(self, node: ast.Predicate, target: NodeType | EdgeType) -> ex.Expression:
        """The condition of a `where`."""
        if isinstance(node, ast.BooleanPredicate):
            return ex.Combine(
                node.operator, tuple(self.predicate(part, target) for part in node.operands)
            )
        column = self._column(node, target)
        match node:
            case ast.PropertyNullTest():
                return ex.IsNull(column, node.negated)
            case ast.Comparison():
                value = self._where_value(node.value)
                if isinstance(target, EdgeType) and node.name in _ENDPOINTS:
                    value = self._as_end(target, node.name, value) or value
                require_comparable(column.type, value.type, node.span, self._operands)
                return ex.Compare(node.operator, column, round_to_match(column, value))
            case ast.Membership():
                return self._membership(node, column, target)

    def _column(
        self,
        node: ast.Comparison | ast.Membership | ast.PropertyNullTest,
        target: NodeType | EdgeType,
    ) -> ex.PropertyValue:
        kind: ex.EntityKind = "edge" if isinstance(target, EdgeType) else "node"
        if isinstance(target, EdgeType) and node.name in _end_names(target):
            return ex.PropertyValue(
                ex.MUTATION_TARGET, kind, target.name, _end_names(target)[node.name], ex.STRING
            )
        if node.name in self._columns:
            return ex.PropertyValue(ex.MUTATION_TARGET, kind, target.name, node.name, ex.STRING)
        declared = self._property(target, node.name, node.name_span)
        if declared.type.is_blob:
            raise self._context.error(
                "T11", f"Blob property `{node.name}` cannot be used in `where`", node.name_span
            )
        if not declared.type.is_plain_scalar and not isinstance(node, ast.PropertyNullTest):
            raise self._context.error(
                "T7",
                f"`{node.name}` is {declared.type}; `where` compares single values",
                node.name_span,
            )
        return ex.PropertyValue(ex.MUTATION_TARGET, kind, target.name, declared.name, declared.type)

    def _where_value(self, node: ast.Expression) -> ex.Expression:
        if isinstance(node, ast.Variable):
            self._context.parameter(node)
        return self._operands.plain(node)

    def _membership(
        self, node: ast.Membership, column: ex.PropertyValue, target: NodeType | EdgeType
    ) -> ex.Expression:
        if isinstance(node.values, ast.Variable):
            self._context.parameter(node.values)
        members = self._operands.value(node.values)
        if isinstance(target, EdgeType) and node.name in _ENDPOINTS and members.type.is_list:
            members = self._as_end(target, node.name, members) or members
        if not members.type.is_list or not (
            is_empty_list(members) or comparable(column.type, members.type.item)
        ):
            raise self._context.error(
                "T7", f"a {column.type} cannot be in a {members.type}", node.values.span
            )
        return ex.ListContains(round_to_match(column, members), column)


def _end_names(edge: EdgeType) -> dict[str, str]:
    """The pseudo-properties of an edge type, and the columns behind them."""
    if not edge.end_types:
        return _ENDPOINTS
    return _ENDPOINTS | {
        member: column
        for member, end, column in (
            ("from_type", "src", "src_type"),
            ("to_type", "dst", "dst_type"),
        )
        if end in edge.end_types
    }


def _assignable(given: ValueType, wanted: ValueType) -> bool:
    """Whether a value of a parameter can be assigned to a property; ranges are checked later."""
    if wanted.is_blob:
        return not given.is_list and given.scalar in (Scalar.BLOB, Scalar.STRING)
    if given.is_list != wanted.is_list or given.vector_dim != wanted.vector_dim:
        return False
    if given.scalar is wanted.scalar:
        return True
    if wanted.scalar.is_integer:
        return given.scalar.is_integer
    return wanted.scalar.is_float and given.scalar.is_numeric
