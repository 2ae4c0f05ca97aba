"""Type-checks the order of a read: its keys, ranking, ties and the limit of each group."""

from __future__ import annotations

from omnigraph.model.records import dataclass
from omnigraph.model.types import ValueType
from omnigraph.query import expressions as ex
from omnigraph.query import plan
from omnigraph.query.check_return import ReturnBlock
from omnigraph.query.operands import (
    Context,
    EdgeVariable,
    NodeVariable,
    Operands,
    PathVariable,
    ValueVariable,
    VariableScope,
    node_id,
    suggest_alias,
)
from omnigraph.query.predicates import rank_call
from omnigraph.syntax import query_ast as ast
from omnigraph.syntax.tokens import Span


@dataclass(frozen=True, slots=True)
class Ordering:
    """The checked order block."""

    rank: plan.Rank | None
    keys: tuple[plan.SortKey, ...]
    tie_breakers: tuple[ex.OutputValue, ...]
    per: plan.LimitPer | None


def check_order(
    body: ast.ReadBody, output: ReturnBlock, context: Context, scope: VariableScope
) -> Ordering:
    """Rank, sort keys and tie breakers of a read."""
    return _OrderChecker(body, output, context, scope).check()


class _OrderChecker:
    def __init__(
        self, body: ast.ReadBody, output: ReturnBlock, context: Context, scope: VariableScope
    ) -> None:
        self._body = body
        self._output = output
        self._context = context
        self._operands = Operands(context, scope)
        self._rank: plan.Rank | None = None

    def check(self) -> Ordering:
        keys = self._body.order
        self._refuse_aliases_beside_nearest(keys)
        sort_keys: list[plan.SortKey] = []
        for at, key in enumerate(keys):
            match key.expression:
                case ast.SearchCall() if key.expression.function in ast.RANK_FUNCTIONS:
                    self._direct_rank(key, key.expression, at)
                case ast.AliasRef():
                    sort_key = self._alias_key(key, key.expression, at)
                    if sort_key is not None:
                        sort_keys.append(sort_key)
                case ast.PropertyRef():
                    value = self._operands.property(key.expression)
                    self._require_orderable(value.type, key)
                    sort_keys.append(self._property_key(value, key))
                case ast.Variable() if (item := self._item(key.expression)) is not None:
                    sort_keys.append(self._property_key(item, key))
                case ast.Variable() if self._is_blob_parameter(key.expression):
                    raise self._context.error(
                        "T24",
                        f"Blob parameter `${key.expression.name}` cannot be ordered by",
                        key.expression.span,
                    )
                case _:
                    raise self._context.error(
                        "T25",
                        "an order key is a property, a return alias, or first a ranking call",
                        key.span,
                        "return the value with `as name` and order by that name",
                    )
        self._check_returned_rrf()
        per = None if self._body.per is None else self._limit_per(self._body.per)
        return Ordering(self._rank, tuple(sort_keys), self._tie_breakers(), per)

    # --- limits of groups -------------------------------------------------------------------------

    def _limit_per(self, written: ast.LimitPer) -> plan.LimitPer:
        if not self._body.order:
            raise self._context.error(
                "T25",
                "`limit … per` takes the first rows of each group, so it needs an order",
                written.span,
                "add `order { … }` in front of it",
            )
        count = self._context.row_count(written.count, "limit")
        assert count is not None
        return plan.LimitPer(count, self._group_keys(written.key))

    def _group_keys(self, node: ast.Expression) -> tuple[ex.Expression, ...]:
        """The keys of `limit … per`: a node, a property or an alias."""
        value: ex.OutputExpression | None = None
        match node:
            case ast.Variable() if (item := self._item(node)) is not None:
                value = item
            case ast.Variable() if node.name not in self._context.parameters:
                return self._node_keys(node)
            case ast.PropertyRef():
                value = self._operands.property(node)
            case ast.AliasRef():
                value = self._output.row_values.get(node.name)
                value = value or self._context.values.get(node.name)
                if value is None:
                    raise self._unknown_alias(node)
        if value is None or isinstance(value, ex.Whole) or not value.type.is_plain_scalar:
            raise self._context.error(
                "T25", "a limit is per node, property or alias of a single value", node.span
            )
        if not self._reads_output:
            return (value,)
        return (self._returned(value, node.span),)

    def _node_keys(self, node: ast.Variable) -> tuple[ex.Expression, ...]:
        bound = self._operands.scope.lookup(node.name)
        if bound is None:
            raise self._operands.unbound(node, "T6")
        if isinstance(bound, EdgeVariable | PathVariable):
            raise self._operands.bare_binding(node, bound)
        assert isinstance(bound, NodeVariable)
        if not self._reads_output:
            return (ex.EntityId(node.name, ex.STRING.with_nullable(bound.optional)),)
        shown = node_id(node.name, bound)
        for name, value in self._output.row_values.items():
            if isinstance(value, ex.CarriedNode) and value.variable == node.name:
                return (ex.OutputValue(name, value.type),)
        keys = [self._returned(shown, node.span)]
        by = dict(self._output.group_by.items) if self._output.group_by is not None else {}
        if (of_type := by.get(f"#{node.name}")) is not None:
            keys.append(ex.OutputValue(f"#{node.name}", of_type.type))
        return tuple(keys)

    def _returned(self, value: ex.Expression, span: Span) -> ex.Expression:
        """The output column with a value; T25 if there is none."""
        for name, shown in self._output.row_values.items():
            if shown == value:
                return ex.OutputValue(name, value.type)
        what = "grouped" if self._output.group_by is not None else "distinct"
        raise self._context.error(
            "T25",
            f"{what} rows can only be ordered and limited by what they return",
            span,
            "add it to the return block",
        )

    # --- ranking ----------------------------------------------------------------------------------

    def _refuse_aliases_beside_nearest(self, keys: tuple[ast.OrderKey, ...]) -> None:
        has_nearest = any(
            isinstance(key.expression, ast.SearchCall) and key.expression.function == "nearest"
            for key in keys
        )
        for key in keys:
            if not isinstance(key.expression, ast.AliasRef):
                continue
            names_nearest = isinstance(self._output.row_values.get(key.expression.name), ex.Nearest)
            if has_nearest or names_nearest:
                raise self._context.error(
                    "T18",
                    "`nearest` orders only as a direct key, without alias keys beside it",
                    key.span,
                    "write `order { nearest($x.v, …) }`",
                )

    def _direct_rank(self, key: ast.OrderKey, call: ast.SearchCall, at: int) -> None:
        score = rank_call(call, self._operands)
        if at > 0 or self._output.group_by is not None:
            where = "of an aggregate query" if at == 0 else "after the first key"
            raise self._context.error("T25", f"a ranking call cannot order {where}", key.span)
        # A direct `bm25` or `rrf` key is best-first in either direction.
        self._set_rank(score, True, key)

    def _set_rank(self, score: ex.RankExpression, best_first: bool, key: ast.OrderKey) -> None:
        if self._body.limit is None and not isinstance(score, ex.Bm25):
            code, name = ("T17", "nearest") if isinstance(score, ex.Nearest) else ("T21", "rrf")
            raise self._context.error(
                code, f"ordering by `{name}` needs a limit", key.span, "add `limit 10` at the end"
            )
        self._rank = plan.Rank(score, best_first)

    def _check_returned_rrf(self) -> None:
        """Raise if a fused score is returned without ranking by it."""
        for item, value in zip(self._body.items, self._output.row_values.values(), strict=True):
            if isinstance(value, ex.Whole):
                continue
            for part in ex.walk(value):
                if isinstance(part, ex.Rrf) and not self._ranks_by(part):
                    raise self._context.error(
                        "T21",
                        "a returned `rrf` must also be the first order key",
                        item.span,
                        "order by the same call, or by its alias",
                    )

    def _ranks_by(self, score: ex.Rrf) -> bool:
        return self._rank is not None and self._rank.score == score

    # --- plain keys -------------------------------------------------------------------------------

    def _alias_key(self, key: ast.OrderKey, alias: ast.AliasRef, at: int) -> plan.SortKey | None:
        value = self._output.row_values.get(alias.name)
        if value is None and alias.name in self._context.values:
            given = self._context.values[alias.name]
            self._require_orderable(given.type, key)
            return self._property_key(given, key)
        if value is None:
            raise self._unknown_alias(alias)
        if isinstance(value, ex.EntityObject | ex.RecordList | ex.CarriedNode):
            what = {
                ex.EntityObject: "a whole entity",
                ex.RecordList: "a list of records",
                ex.CarriedNode: "a node",
            }[type(value)]
            raise self._context.error("T25", f"`{alias.name}` is {what} and has no order", key.span)
        self._require_orderable(value.type, key)
        if isinstance(value, ex.Rrf) and at > 0 and not self._ranks_by(value):
            raise self._context.error(
                "T25", "a ranking call cannot order after the first key", key.span
            )
        if isinstance(value, ex.Bm25 | ex.Rrf) and at == 0 and self._output.group_by is None:
            self._set_rank(value, bool(key.descending), key)
            return None
        if self._reads_output:
            column = ex.OutputValue(alias.name, value.type)
            return plan.SortKey(column, bool(key.descending))
        return plan.SortKey(value, bool(key.descending))

    def _property_key(self, value: ex.Expression, key: ast.OrderKey) -> plan.SortKey:
        if not self._reads_output:
            return plan.SortKey(value, bool(key.descending))
        return plan.SortKey(self._returned(value, key.span), bool(key.descending))

    def _unknown_alias(self, alias: ast.AliasRef) -> Exception:
        return self._context.error(
            "T25",
            f"no return item is called `{alias.name}`",
            alias.span,
            suggest_alias(alias.name, self._output.row_values),
        )

    def _item(self, node: ast.Variable) -> ex.Expression | None:
        """The item of a list that a variable is bound to; None for other variables."""
        bound = self._operands.scope.lookup(node.name)
        return bound.value if isinstance(bound, ValueVariable) else None

    def _is_blob_parameter(self, node: ast.Variable) -> bool:
        declared = self._context.parameters.get(node.name)
        return declared is not None and declared.type.is_blob

    @property
    def _reads_output(self) -> bool:
        return self._output.group_by is not None or self._body.distinct

    def _require_orderable(self, value_type: ValueType, key: ast.OrderKey) -> None:
        if value_type.is_list or value_type.is_vector:
            raise self._context.error("T25", f"a {value_type} has no order", key.span)

    def _tie_breakers(self) -> tuple[ex.OutputValue, ...]:
        """Columns that make the order total for grouped or distinct rows, which have no ids."""
        group_by = self._output.group_by
        if group_by is not None and not self._output.is_distinct:
            return tuple(ex.OutputValue(name, value.type) for name, value in group_by.items)
        if not self._output.is_distinct:
            return ()
        return tuple(
            ex.OutputValue(
                column.name,
                ex.STRING if isinstance(column.expression, ex.Whole) else column.expression.type,
            )
            for column in self._output.columns
        )
