"""Analyses a plan once per compiled query, before any run.

Finds for each step the variables that later steps read, the columns each type is read with, and the
equalities a scan can start from. Text search and ranking calls need more than one row, so they are
replaced in expressions by columns that are computed separately.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field, replace
from typing import assert_never

import pyarrow as pa

from omnigraph.engines.local.inside import can_be_driven, driven, from_inside, from_one
from omnigraph.engines.local.order import TableSizes, is_open, ordered
from omnigraph.engines.local.prepared import (
    Anchor,
    LastHop,
    PreparedBlock,
    PreparedFromOne,
    PreparedInside,
    PreparedPattern,
    PreparedRead,
    PreparedStep,
    SearchCall,
    Tree,
    TreeHop,
    VariableInfo,
    single_test,
)
from omnigraph.model.arrow import DST, ID, SRC, arrow_type
from omnigraph.model.records import dataclass
from omnigraph.model.references import END_TYPES
from omnigraph.query import expressions as ex
from omnigraph.query import plan


def prepare(compiled: plan.ReadPlan, sizes: TableSizes | None = None) -> PreparedRead:
    """The plan with everything that does not depend on data or parameters.

    With ``sizes``, its steps are in the order with the lowest expected cost.
    """
    prepared = _Preparation(compiled, sizes).prepared()
    if sizes is None or not prepared.is_open:
        return prepared
    pattern = driven(compiled.pattern, sizes)
    if pattern is None:
        pattern = compiled.pattern
        if not prepared.is_counted:
            pattern = ordered(pattern, sizes)
    if pattern is compiled.pattern:
        return prepared
    return _Preparation(replace(compiled, pattern=pattern), sizes).prepared()


@dataclass(slots=True)
class _Preparation:
    compiled: plan.ReadPlan
    sizes: TableSizes | None = None
    has_choice: bool = False
    """Whether a block may be solved from the inside, or a stage may be reordered."""
    variables: dict[str, VariableInfo] = field(default_factory=dict)
    calls: dict[str, SearchCall] = field(default_factory=dict)
    names: dict[SearchCall, str] = field(default_factory=dict)
    node_columns: dict[str, dict[str, pa.DataType]] = field(default_factory=dict)
    edge_columns: dict[str, dict[str, pa.DataType]] = field(default_factory=dict)
    followed: set[str] = field(default_factory=set)
    computed: dict[str, plan.Compute] = field(default_factory=dict)
    blocks: dict[str, PreparedBlock] = field(default_factory=dict)
    edge_types: set[str] = field(default_factory=set)

    def prepared(self) -> PreparedRead:
        compiled = self.compiled
        self._learn_variables(compiled.pattern, optional=False)
        group_by = compiled.group_by and plan.GroupBy(
            tuple((name, self.rewritten(item)) for name, item in compiled.group_by.items),
            tuple(
                plan.NamedAggregate(entry.name, self._aggregate(entry.value))
                for entry in compiled.group_by.aggregates
            ),
        )
        columns = tuple(
            column
            if isinstance(column.expression, ex.Whole)
            else replace(column, expression=self.rewritten(column.expression))
            for column in compiled.columns
        )
        order = tuple(
            replace(key, expression=self.rewritten(key.expression)) for key in compiled.order
        )
        having = tuple(map(self.rewritten, compiled.having))
        by_rows = group_by is None and not compiled.distinct
        ordered = bool(order) or compiled.rank is not None
        ties = (
            tuple(v for v in compiled.variables if v.name in self.variables)
            if by_rows and ordered
            else ()
        )
        needed = {variable.name for variable in ties}
        per = compiled.per and replace(
            compiled.per, keys=tuple(map(self.rewritten, compiled.per.keys))
        )
        limited = () if per is None else per.keys
        for expression in (*_tail_expressions(group_by, columns, order, having), *limited):
            needed |= self._reads(expression)
        if compiled.rank is not None:
            needed.add(compiled.rank.score.variable)
            self._learn_columns(compiled.rank.score)
        pattern = self._pattern(compiled.pattern, frozenset(needed))
        # Blocks are solved per row, so grouping by their values needs rows.
        by_shape = None if compiled.rank or self._reads_block(group_by) else group_by
        last_hop = None if by_shape is None else _last_hop(pattern, by_shape)
        # A tree counts all neighbours of a hop; with an interface some may be of another type.
        is_tree = by_shape is not None and not compiled.interfaces
        tree = self._tree(pattern, by_shape) if is_tree and by_shape is not None else None
        is_counted = tree is not None or (last_hop is not None and last_hop.is_counted)
        return PreparedRead(
            compiled,
            pattern,
            self.variables,
            self.calls,
            (*self.calls.values(), *([compiled.rank.score] if compiled.rank else [])),
            compiled.nodes_of,
            dict(compiled.references),
            self.node_columns,
            self.edge_columns,
            group_by,
            columns,
            having,
            order,
            ties,
            frozenset(self.followed),
            last_hop,
            tree,
            _stage(pattern),
            _carried(columns, group_by),
            {name: self._block(name) for name in self.computed},
            per,
            is_counted,
            self.has_choice
            or can_be_driven(compiled.pattern)
            or (len(pattern.steps) > 1 and not is_counted and is_open(compiled.pattern)),
            tuple(sorted(self.edge_types)),
        )

    # --- expressions ------------------------------------------------------------------------------

    def rewritten(self, expression: ex.Expression) -> ex.Expression:
        """The expression with its search calls replaced by columns of their values."""
        self._learn_columns(expression)

        def replacement(part: ex.Expression) -> ex.Expression | None:
            if not isinstance(part, SearchCall):
                return None
            name = self.names.get(part)
            if name is None:
                name = self.names[part] = f"#{len(self.names)}"
                self.calls[name] = part
            return ex.OutputValue(name, part.type)

        return ex.rewrite(expression, replacement)

    def _aggregate(self, value: ex.AggregateValue) -> ex.AggregateValue:
        argument = value.argument
        if argument is None:
            return value
        if value.function == "count" and not value.distinct and self._never_null(argument):
            return replace(value, argument=None)
        return replace(value, argument=self.rewritten(argument))

    def _never_null(self, argument: ex.Expression) -> bool:
        match argument:
            case ex.EntityId():
                return not self.variables[argument.variable].optional
            case ex.PropertyValue():
                optional = self.variables[argument.variable].optional
                return not optional and not argument.type.nullable
        return False

    def _reads(self, expression: ex.OutputExpression) -> frozenset[str]:
        """The match variables an expression reads, also through a search call."""
        if isinstance(expression, ex.EntityObject):
            self._learn_object(expression)
            return frozenset([expression.variable])
        if isinstance(expression, ex.RecordList):
            return self._block(expression.variable).reads
        read: set[str] = set()
        for part in ex.walk(expression):
            if isinstance(part, ex.OutputValue) and part.name in self.calls:
                read.add(self.calls[part.name].variable)
            elif isinstance(part, ex.BoundValue) and part.variable in self.computed:
                read |= self._block(part.variable).reads
            elif (name := getattr(part, "variable", None)) is not None:
                read.add(name)
        return frozenset(read)

    def _reads_block(self, by: plan.GroupBy | None) -> bool:
        """Whether group items or aggregates read values of blocks."""
        return by is not None and any(
            isinstance(part, ex.BoundValue) and part.variable in self.computed
            for expression in _tail_expressions(by, (), (), ())
            if not isinstance(expression, ex.Whole)
            for part in ex.walk(expression)
        )

    def _block(self, variable: str) -> PreparedBlock:
        """A block, prepared when it is first requested."""
        known = self.blocks.get(variable)
        if known is None:
            step = self.computed[variable]
            items = tuple((name, self.rewritten(value)) for name, value in step.items)
            order = tuple(
                replace(key, expression=self.rewritten(key.expression)) for key in step.order
            )
            needed = {tie.name for tie in step.ties}
            for expression in (*(value for _, value in items), *(key.expression for key in order)):
                needed |= self._reads(expression)
            pattern = self._inner(step.pattern, frozenset(needed))
            known = PreparedBlock(replace(step, items=items, order=order), pattern)
            self.blocks[variable] = known
        return known

    def _learn_object(self, entity: ex.EntityObject) -> None:
        for name, type in entity.columns:
            self._learn_column(entity.kind, entity.type_name, name, arrow_type(type))

    def _learn_columns(self, expression: ex.Expression) -> None:
        for part in ex.walk(expression):
            match part:
                case ex.PropertyValue():
                    self._learn_column(
                        part.kind, part.type_name, part.property, arrow_type(part.type)
                    )
                case ex.PathNodes() | ex.PathEdges():
                    self.followed.add(part.variable)
                case ex.TextMatch() | ex.Highlight() | ex.Bm25():
                    self._learn_column("node", part.type_name, part.property, pa.string())
                case ex.Nearest():
                    vector = pa.list_(pa.field("item", pa.float32()), part.dimension)
                    self._learn_column("node", part.type_name, part.property, vector)

    def _learn_column(self, kind: str, type_name: str, name: str, type: pa.DataType) -> None:
        columns = self.node_columns if kind == "node" else self.edge_columns
        if name != ID or kind == "edge":
            columns.setdefault(type_name, {})[name] = type

    # --- patterns ---------------------------------------------------------------------------------

    def _learn_variables(self, pattern: plan.Pattern, *, optional: bool) -> None:
        for step in pattern.steps:
            match step:
                case plan.Scan():
                    self.variables[step.variable] = VariableInfo("node", step.type_name, optional)
                case plan.Expand():
                    self.edge_types.add(step.edge_type)
                    if not step.target_is_bound:
                        info = VariableInfo("node", step.target_type, optional)
                        self.variables[step.target] = info
                    if step.edge_variable is not None:
                        ends = self._typed_ends(step)
                        info = VariableInfo("edge", step.edge_type, optional, ends)
                        self.variables[step.edge_variable] = info
                    if step.path_variable is not None:
                        info = VariableInfo("path", step.source_type, optional)
                        self.variables[step.path_variable] = info
                    if step.weight_pattern is not None:
                        self._learn_variables(step.weight_pattern, optional=False)
                case plan.Exclude():
                    self._learn_variables(step.pattern, optional=optional)
                case plan.Exists():
                    for alternative in step.alternatives:
                        self._learn_variables(alternative, optional=optional)
                case plan.Extend():
                    self._learn_variables(step.pattern, optional=True)
                case plan.Stage():
                    for node in step.nodes:
                        info = VariableInfo("node", node.type_name, node.optional)
                        self.variables[node.name] = info
                    for value in step.values:
                        self.variables[value.variable] = VariableInfo("value", "", optional)
                case plan.Compute():
                    self.computed[step.variable] = step
                    self._learn_variables(step.pattern, optional=optional)
                case plan.Unnest():
                    self.variables[step.variable] = VariableInfo("value", "", optional)
                case plan.FilterRows():
                    pass
                case _:
                    assert_never(step)

    def _typed_ends(self, step: plan.Expand) -> dict[str, str]:
        ends = (SRC, DST) if step.direction != "in" else (DST, SRC)
        interfaces = self.compiled.nodes_of
        typed = [end for end, name in zip(ends, step.declared, strict=True) if name in interfaces]
        return {shown: end for end in typed for shown in (end, END_TYPES[end])}

    def _pattern(self, pattern: plan.Pattern, needed: frozenset[str]) -> PreparedPattern:
        """Prepare the steps from last to first, so that each knows what is read after it."""
        prepared: list[PreparedStep] = []
        introduced: set[str] = set()
        for step in reversed(pattern.steps):
            one = self._step(step, needed)
            prepared.append(one)
            new, read = _introduced(step), self._step_reads(one)
            introduced |= new
            if not (read <= needed and needed.isdisjoint(new)):
                # Steps that read nothing new share one set, so a plan of n steps has few sets.
                needed = (needed | read) - new
        reads = frozenset(needed - introduced)
        return PreparedPattern(tuple(reversed(prepared)), reads)

    def _inner(self, pattern: plan.Pattern, needed: frozenset[str]) -> PreparedPattern:
        """The pattern of a block that is solved per row, or from the inside."""
        prepared = self._pattern(pattern, needed)
        around = {name: self.variables.get(name) for name in sorted(prepared.reads)}
        types = {
            name: info.type_name
            for name, info in around.items()
            if info is not None and info.kind == "node" and not info.optional
        }
        values = frozenset(
            name for name, info in around.items() if info is not None and info.kind == "value"
        )
        if len(types) + len(values) < len(around) or single_test(prepared) is not None:
            return prepared
        if self.sizes is None:
            self.has_choice |= bool(types)
            return prepared
        self.has_choice = True
        if not values:
            ways = tuple(
                PreparedFromOne(
                    one.name,
                    self._pattern(one.pattern, needed | prepared.reads),
                    one.each_start,
                    one.each_row,
                )
                for one in from_one(pattern, types, self.sizes)
            )
            prepared = replace(prepared, from_one=ways)
        found = from_inside(pattern, types, self.sizes, values)
        if found is None:
            return prepared
        whole = self._pattern(found.pattern, needed | prepared.reads)
        # Conditions that read an outer value are tested right after the scan.
        is_tested = len(whole.steps) > 1 and isinstance(whole.steps[1].step, plan.FilterRows)
        begin = 2 if values and is_tested else 1
        inside = PreparedInside(
            PreparedPattern(whole.steps[:begin], frozenset()),
            PreparedPattern(whole.steps[begin:], frozenset()),
            found.each_start,
            found.each_row,
            found.values,
        )
        return replace(prepared, inside=inside)

    def _step(self, step: plan.Step, needed: frozenset[str]) -> PreparedStep:
        match step:
            case plan.Scan():
                predicates = tuple(map(self.rewritten, step.predicates))
                rewritten = replace(step, predicates=predicates)
                residual = tuple(p for p in predicates if not _pins(p, step.entity_id))
                anchors = tuple(_anchors(predicates))
                parts = tuple(
                    self._step(_of_type(rewritten, name), needed)
                    for name, _ in self.compiled.nodes_of.get(step.type_name, ())
                )
                among = tuple(self._pattern(one, frozenset([step.variable])) for one in step.among)
                return PreparedStep(
                    rewritten, needed, among, anchors=anchors, residual=residual, parts=parts
                )
            case plan.Expand():
                predicates = tuple(map(self.rewritten, step.predicates))
                weight = step.weight
                patterns: tuple[PreparedPattern, ...] = ()
                if isinstance(weight, plan.ComputedWeight):
                    weight = replace(weight, value=self.rewritten(weight.value))
                    read = self._reads(weight.value) | {weight.near, weight.edge, weight.far}
                    patterns = (self._pattern(weight.pattern, read),)
                elif weight is not None:
                    self._learn_columns(weight)
                step = replace(step, predicates=predicates, weight=weight)
                return PreparedStep(step, needed, patterns)
            case plan.FilterRows():
                predicates = tuple(map(self.rewritten, step.predicates))
                return PreparedStep(plan.FilterRows(predicates), needed)
            case plan.Exclude():
                return PreparedStep(step, needed, (self._inner(step.pattern, frozenset()),))
            case plan.Exists():
                inner = tuple(self._inner(one, frozenset()) for one in step.alternatives)
                return PreparedStep(step, needed, inner)
            case plan.Extend():
                own = needed & frozenset(step.introduces)
                return PreparedStep(step, needed, (self._inner(step.pattern, own),))
            case plan.Stage():
                before = prepare(step.read, self.sizes)
                self.has_choice |= before.is_open
                self.edge_types.update(before.edge_types)
                for known, columns in (
                    (self.node_columns, before.node_columns),
                    (self.edge_columns, before.edge_columns),
                ):
                    for type_name, types in columns.items():
                        known.setdefault(type_name, {}).update(types)
                return PreparedStep(step, needed, stage=before)
            case plan.Compute():
                block = self._block(step.variable)
                return PreparedStep(block.step, needed, (block.pattern,))
            case plan.Unnest():
                return PreparedStep(replace(step, list=self.rewritten(step.list)), needed)
            case _:
                assert_never(step)

    def _step_reads(self, one: PreparedStep) -> frozenset[str]:
        read: set[str] = set()
        step = one.step
        match step:
            case plan.Expand():
                read.add(step.source)
                if step.target_is_bound:
                    read.add(step.target)
                for predicate in step.predicates:
                    read |= self._reads(predicate)
            case plan.Scan() | plan.FilterRows():
                for predicate in step.predicates:
                    read |= self._reads(predicate)
            case plan.Exclude() | plan.Exists() | plan.Extend():
                for pattern in one.patterns:
                    read |= pattern.reads
            case plan.Unnest():
                read |= self._reads(step.list)
            case plan.Stage() | plan.Compute():
                pass  # a reader of the block's value reads what the block reads
            case _:
                assert_never(step)
        return frozenset(read)

    # --- trees ------------------------------------------------------------------------------------

    def _tree(self, pattern: PreparedPattern, by: plan.GroupBy) -> Tree | None:
        """The tree that the hops of a pattern form, if it has variables that need no rows."""
        steps = pattern.steps
        if len(steps) < 2 or not isinstance(steps[0].step, plan.Scan):
            return None
        root = steps[0].step.variable
        hops: dict[str, TreeHop] = {}
        tests: list[tuple[PreparedStep, frozenset[str]]] = []
        nodes_of = {root: frozenset([root])}
        required: set[str] = set()
        for one in steps[1:]:
            step = one.step
            if isinstance(step, plan.Scan | plan.Extend | plan.Unnest):
                return None
            if not isinstance(step, plan.Expand):
                tests.append((one, self._step_reads(one)))
                continue
            ends = frozenset([step.source, step.target])
            if step.target_is_bound:
                tests.append((one, self._step_reads(one)))
                for name in (step.edge_variable, step.path_variable):
                    if name is not None:
                        # Not only a test: parallel edges make several rows.
                        nodes_of[name] = ends
                        required |= ends
                continue
            if step.path_variable is not None or step.maximum < step.minimum:
                return None
            nodes_of[step.target] = frozenset([step.target])
            of_node = tuple(p for p in step.predicates if step.target in self._reads(p))
            of_edge = tuple(p for p in step.predicates if p not in of_node)
            hops[step.target] = TreeHop(replace(step, predicates=of_node), of_edge, one)
            if step.edge_variable is not None:
                nodes_of[step.edge_variable] = ends
                if step.direction == "both":
                    required |= ends

        def nodes(names: Iterable[str]) -> frozenset[str]:
            return frozenset().union(*(nodes_of[name] for name in names))

        for _, item in by.items:
            required |= nodes(self._reads(item))
        carried: dict[str, str] = {}
        for entry in by.aggregates:
            argument = entry.value.argument
            if entry.value.needs_all_values:
                return None
            if argument is not None:
                read = self._reads(argument)
                name = next(iter(read), None)
                of_hop = any(name == hop.step.edge_variable for hop in hops.values())
                if entry.value.distinct or name is None or len(read) > 1:
                    required |= nodes(read)
                elif of_hop or nodes_of[name] == {name}:
                    carried[entry.name] = name
                else:
                    required |= nodes(read)
        for _, read in tests:
            if len(nodes(read)) != 1:
                required |= nodes(read)
        core = _connected(required, hops) or {_hub(steps[0], hops, [read for _, read in tests])}
        if len(core) > len(hops):
            return None
        between = [
            one for one in steps[1:] if nodes(self._step_reads(one) | _introduced(one.step)) <= core
        ]
        return Tree(
            steps[0],
            hops,
            {
                name: PreparedPattern(
                    tuple(one for one, read in tests if nodes(read) == {name}), frozenset([name])
                )
                for name in (root, *hops)
                if name not in core
            },
            tuple(name for name in (root, *hops) if name in core),
            PreparedPattern(tuple(between), pattern.reads),
            {name: read for name, read in carried.items() if not nodes_of[read] <= core},
            not any(entry.value.distinct for entry in by.aggregates),
        )


def _stage(pattern: PreparedPattern) -> tuple[plan.Stage, PreparedRead] | None:
    first = pattern.steps[0]
    if not isinstance(first.step, plan.Stage) or first.stage is None:
        return None
    return first.step, first.stage


def _carried(
    columns: tuple[plan.Column, ...], by: plan.GroupBy | None
) -> dict[str, ex.CarriedNode]:
    items = dict(by.items) if by is not None else {}
    found = {column.name: items.get(column.name, column.expression) for column in columns}
    return {name: value for name, value in found.items() if isinstance(value, ex.CarriedNode)}


def _connected(names: Iterable[str], hops: Mapping[str, TreeHop]) -> set[str]:
    """The variables on the tree paths between some variables, those included."""
    paths = []
    for name in names:
        path = [name]
        while path[0] in hops:
            path.insert(0, hops[path[0]].step.source)
        paths.append(path)
    shared = 0
    while paths and all(
        p[shared + 1 : shared + 2] == paths[0][shared + 1 :][:1] != [] for p in paths
    ):
        shared += 1
    return {name for path in paths for name in path[shared:]}


def _hub(root: PreparedStep, hops: Mapping[str, TreeHop], tested: Iterable[frozenset[str]]) -> str:
    """The variable to count at if none has to be: the one with most simple leaves next to it.

    The number of solutions at a leaf without conditions is a degree, so its hop is not followed.
    """
    assert isinstance(root.step, plan.Scan)
    start = root.step.variable
    if root.anchors or root.patterns or root.step.entity_id is not None:
        return start  # starts with few nodes
    filtered = {name for names in tested for name in names}
    filtered |= {name for name, hop in hops.items() if hop.step.predicates}
    filtered |= {start} if root.step.predicates else set()
    beside: dict[str, list[tuple[str, TreeHop]]] = {name: [] for name in (start, *hops)}
    for name, hop in hops.items():
        beside[name].append((hop.step.source, hop))
        beside[hop.step.source].append((name, hop))

    def simple_leaves(name: str) -> int:
        return sum(
            len(beside[other]) == 1 and other not in filtered and not hop.of_edge
            for other, hop in beside[name]
        )

    return max(beside, key=simple_leaves)


def _last_hop(pattern: PreparedPattern, by: plan.GroupBy) -> LastHop | None:
    """The last expanding hop, if all steps after it test single rows."""
    if any(entry.value.distinct or entry.value.needs_all_values for entry in by.aggregates):
        return None
    steps = pattern.steps
    for at in range(len(steps) - 1, 0, -1):
        step = steps[at].step
        if isinstance(step, plan.Expand) and not step.target_is_bound:
            if not step.is_single or step.edge_variable or step.path_variable:
                return None
            after = PreparedPattern(steps[at + 1 :], pattern.reads)
            unless = _excluded_link(after.steps, step)
            unread = step.target not in steps[-1].needed
            return LastHop(
                PreparedPattern(steps[:at], pattern.reads),
                step,
                after,
                PreparedPattern(steps[at:], pattern.reads),
                unread and (not after.steps or unless is not None),
                unless,
            )
        if isinstance(step, plan.Scan | plan.Extend | plan.Unnest):
            return None
    return None


def _excluded_link(steps: tuple[PreparedStep, ...], hop: plan.Expand) -> plan.Expand | None:
    """The link between both ends of a hop that the single step after it excludes."""
    if len(steps) != 1 or not isinstance(steps[0].step, plan.Exclude):
        return None
    test = single_test(steps[0].patterns[0])
    if test is None or not test.is_single:
        return None
    return test if {test.source, test.target} == {hop.source, hop.target} else None


def _introduced(step: plan.Step) -> frozenset[str]:
    match step:
        case plan.Scan() | plan.Unnest():
            return frozenset([step.variable])
        case plan.Expand():
            names = {step.edge_variable, step.path_variable} - {None}
            if not step.target_is_bound:
                names.add(step.target)
            return frozenset(name for name in names if name is not None)
        case plan.Extend() | plan.Stage():
            return frozenset(step.introduces)
        case plan.FilterRows() | plan.Exclude() | plan.Exists() | plan.Compute():
            return frozenset()
        case _:
            assert_never(step)


def _of_type(step: plan.Scan, type_name: str) -> plan.Scan:
    """A scan of an interface for one of its node types."""

    def replacement(part: ex.Expression) -> ex.Expression | None:
        if isinstance(part, ex.PropertyValue) and part.variable == step.variable:
            if part.property == ex.NODE_TYPE:
                return ex.Constant(type_name, ex.STRING)
            name = ID if part.property == ex.NODE_ID else part.property
            return replace(part, type_name=type_name, property=name)
        return None

    predicates = tuple(ex.rewrite(predicate, replacement) for predicate in step.predicates)
    ids = (
        each.right
        for each in predicates
        if isinstance(each, ex.Compare)
        and each.operator == "="
        and isinstance(each.left, ex.PropertyValue)
        and each.left.property == ID
        and not ex.variables_of(each.right)
    )
    return replace(step, type_name=type_name, predicates=predicates, entity_id=next(ids, None))


def _pins(predicate: ex.Expression, entity_id: ex.Expression | None) -> bool:
    """Whether a predicate only states that the node has this id."""
    return (
        entity_id is not None
        and isinstance(predicate, ex.Compare)
        and predicate.operator == "="
        and entity_id in (predicate.left, predicate.right)
        and not ex.variables_of(entity_id)
    )


def _anchors(predicates: Iterable[ex.Expression]) -> Iterator[Anchor]:
    for predicate in predicates:
        match predicate:
            case ex.Compare(operator="=", left=left, right=right):
                for column, value in ((left, right), (right, left)):
                    if isinstance(column, ex.PropertyValue) and _is_constant(value):
                        yield Anchor(column.property, arrow_type(column.type), value, False)
            case ex.ListContains(list=several, item=ex.PropertyValue() as column):
                if _is_constant(several):
                    yield Anchor(column.property, arrow_type(column.type), several, True)


def _is_constant(expression: ex.Expression) -> bool:
    return all(
        isinstance(part, ex.Constant | ex.ParameterValue | ex.CurrentTime | ex.RoundToF32)
        for part in ex.walk(expression)
    )


def _tail_expressions(
    group_by: plan.GroupBy | None,
    columns: tuple[plan.Column, ...],
    order: tuple[plan.SortKey, ...],
    having: tuple[ex.Expression, ...],
) -> Iterator[ex.OutputExpression]:
    if group_by is not None:
        yield from (item for _, item in group_by.items)
        yield from (
            entry.value.argument
            for entry in group_by.aggregates
            if entry.value.argument is not None
        )
    yield from (column.expression for column in columns)
    yield from (key.expression for key in order)
    yield from having
