"""Type-checks `order`, and finds the ranking a read asks for."""

from __future__ import annotations

from dataclasses import dataclass

from omnigraph.model.types import ValueType
from omnigraph.query import ast, plan
from omnigraph.query import expressions as ex
from omnigraph.query.check_return import Output
from omnigraph.query.operands import Operands, suggest_alias
from omnigraph.query.scope import Context, Scope
from omnigraph.query.search_calls import rank_call


@dataclass(frozen=True, slots=True)
class Ordering:
    """The checked order block."""

    rank: plan.Rank | None
    keys: tuple[plan.SortKey, ...]
    tie_breakers: tuple[ex.OutputValue, ...]


def check_order(body: ast.Read, output: Output, context: Context, scope: Scope) -> Ordering:
    """Rank, sort keys and tie breakers of a read."""
    return _OrderChecker(body, output, context, scope).check()


class _OrderChecker:
    def __init__(self, body: ast.Read, output: Output, context: Context, scope: Scope) -> None:
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
        return Ordering(self._rank, tuple(sort_keys), self._tie_breakers())

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
        # Written directly, `bm25` and `rrf` are best-first whatever the direction says.
        self._set_rank(score, True, key)

    def _set_rank(self, score: ex.RankExpression, best_first: bool, key: ast.OrderKey) -> None:
        if self._body.limit is None and not isinstance(score, ex.Bm25):
            code, name = ("T17", "nearest") if isinstance(score, ex.Nearest) else ("T21", "rrf")
            raise self._context.error(
                code, f"ordering by `{name}` needs a limit", key.span, "add `limit 10` at the end"
            )
        self._rank = plan.Rank(score, best_first)

    def _check_returned_rrf(self) -> None:
        """A fused score only exists while ranking by it."""
        for item, value in zip(self._body.items, self._output.row_values.values(), strict=True):
            if isinstance(value, ex.EntityObject):
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
        if value is None:
            raise self._context.error(
                "T25",
                f"no return item is called `{alias.name}`",
                key.span,
                suggest_alias(alias.name, self._output.row_values),
            )
        if isinstance(value, ex.EntityObject):
            raise self._context.error(
                "T25", f"`{alias.name}` is a whole entity and has no order", key.span
            )
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
        for name, shown in self._output.row_values.items():
            if shown == value:
                return plan.SortKey(ex.OutputValue(name, value.type), bool(key.descending))
        what = "grouped" if self._output.group_by is not None else "distinct"
        raise self._context.error(
            "T25",
            f"{what} rows can only be ordered by what they return",
            key.span,
            "add the property to the return block",
        )

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
        """Columns that make the order total where rows no longer stand for bound entities."""
        group_by = self._output.group_by
        if group_by is not None and not self._body.distinct:
            return tuple(ex.OutputValue(name, value.type) for name, value in group_by.items)
        if not self._body.distinct:
            return ()
        return tuple(
            ex.OutputValue(
                column.name,
                ex.STRING
                if isinstance(column.expression, ex.EntityObject)
                else column.expression.type,
            )
            for column in self._output.columns
        )
