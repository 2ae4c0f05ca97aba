"""Runs one plan from the first scan to the last row."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, assert_never

from omnigraph.errors import InputError
from omnigraph.model.parameters import bind_parameters
from omnigraph.query import expressions as ex
from omnigraph.query import plan
from tests.support.reference.analyser import tokens as plain_tokens
from tests.support.reference.blocks import block_value
from tests.support.reference.embedding import mock_vector
from tests.support.reference.interfaces import Interfaces
from tests.support.reference.match import Match
from tests.support.reference.ranking import ranking
from tests.support.reference.search import Embed, Search
from tests.support.reference.solutions import Answer, Entity, Solution
from tests.support.reference.tail import Tail
from tests.support.reference.text import Tokens
from tests.support.reference.values import Row

Tables: TypeAlias = Mapping[str, Sequence[Entity]]
"""The rows of a snapshot by table key, such as `node:Person`."""

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def mock_embed(call: ex.Nearest, text: str) -> list[float]:
    """Embeds as the mock provider does."""
    return mock_vector(text, call.dimension)


@dataclass(frozen=True)
class Reference:
    """The naive engine over one snapshot."""

    tables: Tables
    tokens: Tokens = plain_tokens
    embed: Embed = mock_embed
    now: dt.datetime = EPOCH

    def run(self, read: plan.ReadPlan, document: object = None) -> Answer:
        """The rows of a plan; ``document`` holds the parameters as a caller sends them."""
        parameters = bind_parameters({p.name: p.type for p in read.parameters}, document)
        return self._answer(read.within(parameters), parameters)

    def _answer(self, read: plan.ReadPlan, parameters: Mapping[str, Any]) -> Answer:
        limit, offset = (_row_count(count, parameters) for count in (read.limit, read.offset))
        if read.rank is not None and limit is None and not isinstance(read.rank.score, ex.Bm25):
            raise InputError("nearest and rrf need a limit, and the one given is null")
        search = Search(self.tables, parameters, self.tokens, self.embed)
        for expression in _expressions(read):
            search.check(expression)

        def row(solution: Solution) -> Row:
            return Row(solution, parameters, self.now, search)

        match = Match(
            Interfaces.of(read, self.tables),
            lambda solution, test: row(solution).is_true(test),
            lambda stage: self._answer(stage, parameters),
            lambda step, found: block_value(
                step, list(map(row, found)), _row_count(step.limit, parameters)
            ),
            lambda solution, expression: row(solution).value(expression),
        )
        solutions = match.solutions(read.pattern)
        ranked = None if read.rank is None else ranking(read.rank, solutions, search, limit)
        per = None if read.per is None else _row_count(read.per.count, parameters)
        return Tail(read, row, ranked, limit, offset, per).answer(solutions)


def _row_count(count: plan.RowCount | None, parameters: Mapping[str, Any]) -> int | None:
    if count is None or isinstance(count, int):
        return count
    given = parameters[count.name]
    if given is not None and given < 0:
        raise InputError(f"parameter '{count.name}' counts rows and cannot be negative: {given}")
    return None if given is None else int(given)


def _expressions(read: plan.ReadPlan) -> Iterator[ex.Expression]:
    """Every expression of a plan and everything inside it."""
    roots: list[ex.OutputExpression] = [column.expression for column in read.columns]
    roots += read.having
    roots += [key.expression for key in read.order]
    if read.rank is not None:
        roots.append(read.rank.score)
    if read.group_by is not None:
        roots += [item for _, item in read.group_by.items]
        roots += [named.value for named in read.group_by.aggregates]
    roots += _conditions(read.pattern)
    for root in roots:
        if not isinstance(root, ex.Whole):
            yield from ex.walk(root)


def _conditions(pattern: plan.Pattern) -> Iterator[ex.Expression]:
    for step in pattern.steps:
        match step:
            case plan.Scan() | plan.FilterRows():
                yield from step.predicates
            case plan.Expand():
                yield from step.predicates
                if isinstance(step.weight, plan.ComputedWeight):
                    yield from _conditions(step.weight.pattern)
                    yield step.weight.value
            case plan.Exclude() | plan.Extend():
                yield from _conditions(step.pattern)
            case plan.Exists():
                for alternative in step.alternatives:
                    yield from _conditions(alternative)
            case plan.Compute():
                yield from _conditions(step.pattern)
                yield from (value for _, value in step.items)
            case plan.Unnest():
                yield step.list
            case plan.Stage():
                yield from _expressions(step.read)
            case _:
                assert_never(step)
