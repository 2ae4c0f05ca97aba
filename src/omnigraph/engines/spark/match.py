"""Runs a pattern as joins: from the first scan to a frame of all solutions.

A hop joins the rows with the pairs that an edge type links. The result is joined with the nodes at
the other end only if the query reads more than their ids: every edge of a snapshot has both ends,
which each commit checks. A block (`not`, `any`, `optional`) is solved once per distinct binding of
the variables it reads, and joined to the rows by them. Row numbers are not needed for that; Spark
could not give stable ones, because it may compute a frame twice, in another order.
"""

from __future__ import annotations

import operator as op
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from typing import Literal, assert_never

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

from omnigraph.engines.base import StepReport
from omnigraph.engines.local.match import JoinKeys, join_keys
from omnigraph.engines.local.prepared import PreparedPattern, PreparedStep, SearchCall, single_test
from omnigraph.engines.spark.bindings import (
    NODES,
    PATH_PARTS,
    Bindings,
    Key,
    Values,
    id_of,
    keys_read,
    match_values,
)
from omnigraph.engines.spark.jobs import Jobs
from omnigraph.engines.spark.reach import WeightedPairs, cheapest, paths, reached
from omnigraph.engines.spark.tables import Tables, tested_after
from omnigraph.engines.spark.tail import aggregate_column
from omnigraph.engines.spark.types import sort_keys
from omnigraph.model.arrow import ID
from omnigraph.model.records import dataclass
from omnigraph.query import expressions as ex
from omnigraph.query import plan
from omnigraph.query.explain import explain_step


@dataclass(frozen=True, slots=True)
class PatternMatcher:
    """Runs steps over bindings."""

    tables: Tables
    jobs: Jobs
    counts: bool = False
    """Whether equal rows may be merged with a count, because only aggregates read them."""

    def solutions(self) -> Bindings:
        """All solutions of the pattern of a plan."""
        prepared = self.tables.prepared
        by = prepared.group_by
        if by is None or any(entry.value.needs_all_values for entry in by.aggregates):
            return self.run(prepared.pattern, Bindings(), frozenset())
        expressions = [item for _, item in by.items]
        expressions += [e.value.argument for e in by.aggregates if e.value.argument is not None]
        read = frozenset(key for each in expressions for key in keys_read(each, prepared.calls))
        return replace(self, counts=True).run(prepared.pattern, Bindings(), read)

    def run(
        self, pattern: PreparedPattern, bindings: Bindings, read: frozenset[Key] = frozenset()
    ) -> Bindings:
        """The solutions that extend some rows; ``read`` is what later steps read of them."""
        steps = pattern.steps
        needed = self._needed_after(steps, read) if self.counts else [read] * len(steps)
        at = 0
        while at < len(steps):
            one = steps[at]
            following = steps[at + 1] if at + 1 < len(steps) else None
            keys = join_keys(one, following) if bindings.frame is not None else None
            began = time.perf_counter()
            if keys is not None and following is not None:
                bindings, strategy = self._joined(one, following, keys, bindings), "join by value"
                at += 2
            elif following is not None and self._begins_with_edges(one, following, bindings):
                assert isinstance(following.step, plan.Expand)
                bindings = self._all_edges(following.step, needed[at + 1])
                strategy, one = "all edges", following
                at += 2
            else:
                bindings, strategy = self._step(one, bindings, needed[at])
                at += 1
            self._report(one.step, strategy, bindings, began)
        return bindings

    # --- equal rows -------------------------------------------------------------------------------

    def _needed_after(
        self, steps: tuple[PreparedStep, ...], read: frozenset[Key]
    ) -> list[frozenset[Key]]:
        """For each step, what later steps and the aggregates read."""
        needed = [read]
        for one in reversed(steps[1:]):
            needed.append(needed[-1] | self._keys_of(one))
        return needed[::-1]

    def _keys_of(self, one: PreparedStep) -> frozenset[Key]:
        calls = self._calls
        found: set[Key] = set()
        match one.step:
            case plan.Expand() as step:
                found.add((step.source, ID))
                if step.target_is_bound:
                    found.add((step.target, ID))
                for predicate in step.predicates:
                    found.update(keys_read(predicate, calls))
            case plan.Scan() | plan.FilterRows() as step:
                for predicate in step.predicates:
                    found.update(keys_read(predicate, calls))
            case plan.Unnest() as step:
                found.update(keys_read(step.list, calls))
            case plan.Stage():
                pass
            case _:
                for variable in {name for pattern in one.patterns for name in pattern.reads}:
                    known = self.tables.needs
                    names = [*known.columns.get(variable, {}), *known.calls.get(variable, {})]
                    found.update((variable, name) for name in (ID, *PATH_PARTS, *names))
        return frozenset(found)

    def _counted(self, bindings: Bindings, variable: str, needed: frozenset[Key]) -> Bindings:
        """Merge equal rows with a count, if only one variable of them is still read.

        The rows are about to be joined by that variable, so this uses the shuffle that the join
        needs anyway, with fewer rows: of two hops, only the number of first hops to each node
        matters.
        """
        kept = {key: name for key, name in bindings.names.items() if key in needed}
        kept[variable, ID] = bindings.name(variable)
        dropped = {key[0] for key in bindings.names} - {variable}
        if not self.counts or not dropped or any(key[0] != variable for key in kept):
            return bindings
        times = self.tables.names.new()
        total = F.count(F.lit(1)) if bindings.times is None else F.sum(bindings.times)
        frame = bindings.rows.groupBy(*kept.values()).agg(total.alias(times))
        return Bindings(frame, kept, times)

    def _begins_with_edges(
        self, one: PreparedStep, following: PreparedStep, bindings: Bindings
    ) -> bool:
        """Whether a scan only names the start of a hop: every edge starts at some node."""
        scan, hop = one.step, following.step
        return (
            bindings.frame is None
            and isinstance(scan, plan.Scan)
            and isinstance(hop, plan.Expand)
            and hop.source == scan.variable
            and hop.is_single
            and not (scan.predicates or hop.target_is_bound)
            and hop.edge_variable is None
            and hop.path_variable is None
            and not self.tables.is_needed(scan.variable)
        )

    def _all_edges(self, step: plan.Expand, needed: frozenset[Key]) -> Bindings:
        """A hop from every node of a type."""
        frame, near, far = self.tables.pairs(step)
        is_own = self.tables.ids.is_of(F.col(near), step.declared[0], step.source_type)
        frame = frame if is_own is None else frame.where(is_own)
        found = Bindings(frame, {(step.source, ID): near, (step.target, ID): far})
        return self._at_target(step, found, needed)

    def _report(self, step: plan.Step, strategy: str, bindings: Bindings, began: float) -> None:
        trace = self.tables.run.trace
        if trace is not None:
            rows = self.jobs.run(bindings.rows.count)
            seconds = time.perf_counter() - began
            trace.steps.append(StepReport(explain_step(step), strategy, rows, seconds))

    def _step(
        self, one: PreparedStep, bindings: Bindings, needed: frozenset[Key]
    ) -> tuple[Bindings, str]:
        if not isinstance(one.step, plan.Scan | plan.Stage):
            bindings = self._begun(bindings)
        match one.step:
            case plan.Scan() as step:
                return self._scan(one, step, bindings)
            case plan.Expand() as step:
                return self._expand(one, step, bindings, needed)
            case plan.FilterRows() as step:
                return self.where(step.predicates, bindings), "filter"
            case plan.Exclude():
                return self._tested(one.patterns, bindings, "left_anti"), "anti-join"
            case plan.Exists():
                return self._tested(one.patterns, bindings, "left_semi"), "semi-join"
            case plan.Extend() as step:
                return self._extend(one.patterns[0], step, bindings), "left join"
            case plan.Stage() as step:
                return self._stage(step), "rows of the stage before"
            case plan.Compute() as step:
                return self._compute(one.patterns[0], step, bindings), "left join of values"
            case plan.Unnest() as step:
                return self._unnest(step, bindings), "items of lists"
            case _:
                assert_never(one.step)

    @property
    def _calls(self) -> Mapping[str, SearchCall]:
        return self.tables.prepared.calls

    def _begun(self, bindings: Bindings) -> Bindings:
        """Bindings with a frame; before the first scan it has the one empty solution."""
        if bindings.frame is not None:
            return bindings
        return Bindings(self.jobs.spark.range(1).select(), {})

    def values(self, bindings: Bindings) -> Values:
        """Expressions over the rows found so far."""
        return match_values(bindings, self.tables.constants, self._calls, self.tables.ids)

    def where(self, predicates: Iterable[ex.Expression], bindings: Bindings) -> Bindings:
        """The rows for which every predicate is true."""
        mask = self.values(bindings).all_hold(predicates)
        return bindings if mask is None else bindings.joined(bindings.rows.where(mask), {})

    # --- scans ------------------------------------------------------------------------------------

    def _stage(self, step: plan.Stage) -> Bindings:
        """The rows of the previous stage, with what the query reads of their nodes."""
        frame = self.tables.staged
        assert frame is not None
        names: dict[Key, str] = {}
        carried = {value.name: value.variable for value in step.values}
        for at, column in enumerate(step.read.columns):
            made = self.tables.names.new()
            frame = frame.withColumnRenamed(f"r{at}", made)
            names[carried.get(column.name, column.name), ID] = made
        bindings = Bindings(frame, names)
        for node in step.nodes:
            if self.tables.is_needed(node.name):
                nodes, found = self.tables.nodes(node.name, node.type_name)
                node_id = found.pop((node.name, ID))
                same = bindings.column(node.name) == F.col(node_id)
                how = "left_outer" if node.optional else "inner"
                together = bindings.rows.join(nodes, same, how).drop(node_id)
                bindings = bindings.joined(together, found)
        return bindings

    def _unnest(self, step: plan.Unnest, bindings: Bindings) -> Bindings:
        """A row for each item of a list."""
        lists, made = self.tables.names.new(), self.tables.names.new()
        # In a column of its own: Spark refuses some functions inside a generator.
        frame = bindings.rows.withColumn(lists, self.values(bindings).column(step.list))
        frame = frame.withColumn(made, F.explode(F.col(lists))).drop(lists)
        return bindings.joined(frame, {(step.variable, ID): made})

    def _scan(self, one: PreparedStep, step: plan.Scan, bindings: Bindings) -> tuple[Bindings, str]:
        frame, names, strategy = self._nodes(one, step)
        if bindings.frame is None:
            return Bindings(frame, names), strategy
        return bindings.joined(bindings.rows.crossJoin(frame), names), f"{strategy}, cross product"

    def _nodes(self, one: PreparedStep, step: plan.Scan) -> tuple[DataFrame, dict[Key, str], str]:
        if step.entity_id is not None:
            frame, names = self.tables.nodes(
                step.variable, step.type_name, (one.residual,), step.entity_id
            )
            return frame, names, "id lookup"
        safe = tuple(p for p in step.predicates if one.anchors and not ex.can_fail(p))
        rest = tuple(p for p in step.predicates if p not in safe)
        frame, names = self.tables.nodes(step.variable, step.type_name, (safe, rest))
        return frame, names, "scan by workers"

    def _joined(
        self, one: PreparedStep, following: PreparedStep, keys: JoinKeys, bindings: Bindings
    ) -> Bindings:
        """Run a scan and the equalities after it as a join."""
        assert isinstance(one.step, plan.Scan)
        assert isinstance(following.step, plan.FilterRows)
        frame, names, _ = self._nodes(one, one.step)
        left, right = self.values(bindings), self.values(Bindings(frame, names))
        same = [left.column(bound) == right.column(fresh) for bound, fresh in keys]
        together = bindings.joined(bindings.rows.join(frame, _all(same)), names)
        equal = [
            predicate
            for predicate in following.step.predicates
            if not (
                isinstance(predicate, ex.Compare)
                and predicate.operator == "="
                and {(predicate.left, predicate.right), (predicate.right, predicate.left)}
                & set(keys)
            )
        ]
        return self.where(equal, together)

    # --- hops -------------------------------------------------------------------------------------

    def _expand(
        self, one: PreparedStep, step: plan.Expand, bindings: Bindings, needed: frozenset[Key]
    ) -> tuple[Bindings, str]:
        if step.maximum < step.minimum:
            return self._nothing(step, bindings), "nothing"
        if not step.target_is_bound:
            bindings = self._counted(bindings, step.source, needed)
        if step.edge_variable is not None:
            return self._bound_edges(step, bindings, needed), "join of edges"
        if step.path_variable is not None:
            return self._paths(one, step, bindings, needed), "breadth-first joins with paths"
        if step.target_is_bound:
            return self._linked(step, bindings, "left_semi"), "semi-join of edges"
        if step.is_single:
            frame, near, far = self.tables.pairs(step)
            strategy = "join of edges"
        else:
            frame, near, far = self._reached(step, bindings)
            strategy = "breadth-first joins"
        joined = bindings.rows.join(frame, bindings.column(step.source) == F.col(near))
        found = bindings.joined(joined.drop(near), {(step.target, ID): far})
        return self._at_target(step, found, needed), strategy

    def _nothing(self, step: plan.Expand, bindings: Bindings) -> Bindings:
        """No rows, with the columns that later steps read."""
        names: dict[Key, str] = {}
        frame = bindings.rows.where(F.lit(False))
        if not step.target_is_bound:
            nodes, names = self.tables.nodes(step.target, step.target_type)
            frame = frame.crossJoin(nodes)
        if step.edge_variable is not None:
            edges, _, _, known = self.tables.edges(step)
            frame, names = frame.crossJoin(edges), {**names, **known}
        if step.path_variable is not None:
            for part, type in PATH_PARTS.items():
                names = {**names, (step.path_variable, part): (made := self.tables.names.new())}
                frame = frame.withColumn(made, F.lit(None).cast(type))
        return bindings.joined(frame, names)

    def _at_target(self, step: plan.Expand, bindings: Bindings, needed: frozenset[Key]) -> Bindings:
        """The rows whose target passes the conditions, with what the query reads of it."""
        after = tested_after(step)
        if not step.target_is_bound:
            target = bindings.column(step.target)
            is_own = self.tables.ids.is_of(target, step.declared[1], step.target_type)
            if is_own is not None:
                bindings = bindings.joined(bindings.rows.where(is_own), {})
            conditions = tuple(
                predicate
                for predicate in step.predicates
                if predicate not in after and ex.variables_of(predicate) == {step.target}
            )
            if conditions or self.tables.is_needed(step.target):
                after_keys = {key for each in after for key in keys_read(each, self._calls)}
                bindings = self._counted(bindings, step.target, needed | after_keys)
                nodes, names = self.tables.nodes(step.target, step.target_type, (conditions,))
                found = bindings.column(step.target)
                node_id = names.pop((step.target, ID))
                together = bindings.rows.join(nodes, found == F.col(node_id)).drop(node_id)
                bindings = bindings.joined(together, names)
        return self.where(after, bindings)

    def _linked(
        self, step: plan.Expand, bindings: Bindings, how: Literal["left_semi", "left_anti"]
    ) -> Bindings:
        """The rows whose target is a destination of their source, or (anti join) is not."""
        if step.is_single:
            frame, near, far = self.tables.pairs(step)
        else:
            frame, near, far = self._reached(step, bindings)
        same = (bindings.column(step.source) == F.col(near)) & (
            bindings.column(step.target) == F.col(far)
        )
        found = bindings.joined(bindings.rows.join(frame, same, how), {})
        return self.where(step.predicates, found)

    def _bound_edges(
        self, step: plan.Expand, bindings: Bindings, needed: frozenset[Key]
    ) -> Bindings:
        """One row per stored edge."""
        frame, near, far, names = self.tables.edges(step)
        joined = _joined_hop(step, bindings, frame, (near, far), names)
        return self._at_target(step, joined, needed)

    def _paths(
        self, one: PreparedStep, step: plan.Expand, bindings: Bindings, needed: frozenset[Key]
    ) -> Bindings:
        """The paths of a hop: one row per pair, or per shortest path."""
        assert step.path_variable is not None
        sources = self._sources(step, bindings)
        if isinstance(step.weight, plan.ComputedWeight):
            weighted = self._computed_weights(one.patterns[0], step.weight)
            frame, near, far, parts = cheapest(step, sources, weighted, self)
        elif step.weight is not None:
            weighted = self.tables.weighted_edges(step)
            frame, near, far, parts = cheapest(step, sources, weighted, self)
        elif step.path_variable in self.tables.prepared.followed:
            frame, near, far, parts = paths(step, sources, self.tables.path_edges(step), self)
        else:
            frame, near, far, parts = paths(step, sources, (*self.tables.pairs(step), None), self)
        frame = frame.withColumn(parts[NODES], self._path_ids(step, F.col(parts[NODES])))
        names = {(step.path_variable, part): name for part, name in parts.items()}
        joined = _joined_hop(step, bindings, frame, (near, far), names)
        return self._at_target(step, joined, needed)

    def _computed_weights(
        self, pattern: PreparedPattern, weight: plan.ComputedWeight
    ) -> WeightedPairs:
        """The edges that have a computed weight, in each direction that a path may take them."""
        found = self._begun(replace(self, counts=False).run(pattern, Bindings()))
        names = [self.tables.names.new() for _ in range(4)]
        columns = [found.column(name) for name in (weight.near, weight.far, weight.edge)]
        columns.append(self.values(found).column(weight.value).cast("double"))
        shown = [column.alias(name) for column, name in zip(columns, names, strict=True)]
        frame = found.rows.select(*shown).where(F.col(names[3]).isNotNull())
        near, far, id, cost = names
        return self.jobs.kept_frame(frame), near, far, id, cost

    def _path_ids(self, step: plan.Expand, nodes: Column) -> Column:
        """The nodes of a path by their ids."""
        ids = self.tables.ids
        first, rest = F.slice(nodes, 1, 1), F.slice(nodes, 2, F.size(nodes))
        if ids.is_mixed(step.source_type):
            first = F.transform(first, id_of)
        if ids.is_mixed(step.target_type):
            rest = F.transform(rest, id_of)
        is_mixed = ids.is_mixed(step.source_type) or ids.is_mixed(step.target_type)
        return F.concat(first, rest) if is_mixed else nodes

    def _reached(self, step: plan.Expand, bindings: Bindings) -> tuple[DataFrame, str, str]:
        pairs = self.tables.pairs(step)
        return reached(step, self._sources(step, bindings), pairs, self)

    def _sources(self, step: plan.Expand, bindings: Bindings) -> DataFrame:
        """The distinct nodes that a hop starts at."""
        source = bindings.column(step.source)
        return bindings.rows.select(source).where(source.isNotNull()).distinct()

    # --- blocks -----------------------------------------------------------------------------------

    def _tested(
        self,
        patterns: tuple[PreparedPattern, ...],
        bindings: Bindings,
        how: Literal["left_semi", "left_anti"],
    ) -> Bindings:
        """The rows that some solution of some pattern extends, or (anti join) that none does."""
        if len(patterns) == 1:
            test = single_test(patterns[0])
            if test is not None:
                return self._linked(test, bindings, how)
            found, same = self._solved(patterns[0], bindings)
            return bindings.joined(bindings.rows.join(found, same, how), {})
        read = sorted({name for pattern in patterns for name in pattern.reads})
        every = self._distinct(bindings, read)
        kept = []
        for pattern in patterns:
            found, same = self._solved(pattern, every)
            kept.append(every.rows.join(found, same, "left_semi"))
        names = [bindings.identity(variable) for variable in read]
        some = reduce(DataFrame.union, [frame.select(*names) for frame in kept]).distinct()
        fresh = {name: self.tables.names.new() for name in names}
        some = some.select(*(F.col(name).alias(fresh[name]) for name in names))
        same = _all([F.col(name).eqNullSafe(F.col(fresh[name])) for name in names])
        return bindings.joined(bindings.rows.join(some, same, how), {})

    def _extend(self, pattern: PreparedPattern, step: plan.Extend, bindings: Bindings) -> Bindings:
        """Every row with its solutions; nulls where there is none (outer join)."""
        inner, keys, same = self._run_once(pattern, bindings)
        new = inner.of(step.introduces)
        found = inner.rows.select(*keys.values(), *new.values())
        joined = bindings.rows.join(found, same, "left_outer").drop(*keys)
        return bindings.joined(joined, new)

    def _compute(
        self, pattern: PreparedPattern, step: plan.Compute, bindings: Bindings
    ) -> Bindings:
        """Every row with the value of a block, computed once per binding that it reads."""
        inner, keys, same = self._run_once(pattern, bindings)
        values, names = self.values(inner), self.tables.names
        shown = [(names.new(), value) for _, value in step.items]
        order = [(names.new(), key) for key in step.order]
        ties = [(names.new(), tie.name) for tie in step.ties]
        found = inner.rows.select(
            *keys.values(),
            *(values.column(value).alias(name) for name, value in shown),
            *(values.column(key.expression).alias(name) for name, key in order),
            *(inner.column(variable).alias(name) for name, variable in ties),
        )
        if len(shown) == 1:
            found = found.where(F.col(shown[0][0]).isNotNull())
        if step.distinct:
            found = found.dropDuplicates([*keys, *(name for name, _ in shown)])
        made = names.new()
        if step.function == "collect":
            sorting = [
                part
                for name, key in order
                for part in sort_keys(F.col(name), key.expression.type, descending=key.descending)
            ]
            if not order or step.distinct:
                sorting += [p for name, value in shown for p in sort_keys(F.col(name), value.type)]
            for (name, variable), tie in zip(ties, step.ties, strict=True):
                if tie.value_type is not None:
                    sorting += sort_keys(F.col(name), tie.value_type)
                else:
                    sorting += self._tie_keys(variable, F.col(name))
            items = [name for name, _ in shown]
            found, value = self._listed(step, found, list(keys), items, sorting)
        elif step.function == "count" or step.function == "exists":  # noqa: PLR1714 - for types
            value = F.count(F.lit(1))
        else:
            ((name, expression),) = shown
            of_values = ex.AggregateValue(step.function, expression, False, expression.type)
            value = aggregate_column(of_values, F.col(name), None)
        grouped = found.groupBy(*keys).agg(value.alias(made))
        joined = bindings.rows.join(grouped, same, "left_outer").drop(*keys)
        if step.function == "collect":
            none = F.array().cast(grouped.schema[made].dataType)
            joined = joined.withColumn(made, F.coalesce(F.col(made), none))
        elif step.function in ("count", "exists"):
            number = F.coalesce(F.col(made), F.lit(0))
            joined = joined.withColumn(made, number > 0 if step.function == "exists" else number)
        return bindings.joined(joined, {(step.variable, ID): made})

    def _listed(
        self,
        step: plan.Compute,
        found: DataFrame,
        keys: list[str],
        items: list[str],
        sorting: list[Column],
    ) -> tuple[DataFrame, Column]:
        """The rows that a list takes of each binding, and the aggregate that makes the list."""
        place = self.tables.names.new()
        number = F.row_number().over(Window.partitionBy(*keys).orderBy(*sorting))
        found = found.withColumn(place, number)
        limit = self.tables.run.row_count(step.limit)
        if limit is not None:
            found = found.where(F.col(place) <= limit)
        one = F.col(items[0])
        if len(items) > 1:
            one = F.struct(*(F.col(name).alias(f"i{at}") for at, name in enumerate(items)))
        entries = F.sort_array(F.collect_list(F.struct(F.col(place), one.alias("value"))))
        return found, F.transform(entries, lambda entry: entry.getField("value"))

    def _tie_keys(self, variable: str, column: Column) -> list[Column]:
        """Sort keys of entities: their ids, for an interface also their types."""
        ids = self.tables.ids
        parts = [column]
        if ids.types.get(variable) in ids.members:
            parts = [ids.id(variable, column), ids.type(variable, column)]
        return [part.asc_nulls_first() for part in parts]

    def _solved(self, pattern: PreparedPattern, bindings: Bindings) -> tuple[DataFrame, Column]:
        """The bindings of the outer variables of a pattern for which it has a solution."""
        inner, keys, same = self._run_once(pattern, bindings)
        found = inner.rows.select(*keys.values())
        return found if keys else found.limit(1), same

    def _run_once(
        self, pattern: PreparedPattern, bindings: Bindings
    ) -> tuple[Bindings, dict[str, Column], Column]:
        """The solutions of a block for each distinct binding of the variables that it reads.

        With them the columns of these variables under new names, and the condition that joins
        them with the bindings.
        """
        read = sorted(pattern.reads)
        outer = self._distinct(bindings, read)
        inner = self._begun(replace(self, counts=False).run(pattern, outer))
        fresh = {outer.identity(variable): self.tables.names.new() for variable in read}
        keys = {new: F.col(name).alias(new) for name, new in fresh.items()}
        same = _all([F.col(name).eqNullSafe(F.col(new)) for name, new in fresh.items()])
        return inner, keys, same

    def _distinct(self, bindings: Bindings, variables: Sequence[str]) -> Bindings:
        """The distinct combinations of what some variables are bound to."""
        names = bindings.of(variables)
        if not names:
            return Bindings()
        identities = [bindings.identity(variable) for variable in variables]
        return Bindings(bindings.rows.select(*names.values()).dropDuplicates(identities), names)


def _all(conditions: list[Column]) -> Column:
    return reduce(op.and_, conditions) if conditions else F.lit(True)


def _joined_hop(
    step: plan.Expand,
    bindings: Bindings,
    frame: DataFrame,
    ends: tuple[str, str],
    names: Mapping[Key, str],
) -> Bindings:
    """The bindings joined to the rows of a hop; ``ends`` are its end columns in ``frame``."""
    near, far = ends
    same = bindings.column(step.source) == F.col(near)
    if step.target_is_bound:
        same = same & (bindings.column(step.target) == F.col(far))
        return bindings.joined(bindings.rows.join(frame, same).drop(near, far), names)
    joined = bindings.rows.join(frame, same).drop(near)
    return bindings.joined(joined, {**names, (step.target, ID): far})
