"""Properties of the order the planner gives to the steps of a match."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.errors import QueryTypeError
from omnigraph.query import expressions as ex
from omnigraph.query import plan
from tests.query import patterns as model
from tests.query.library import catalog, matching


def planned(clauses: Iterable[model.Clause]) -> plan.Pattern:
    return matching(model.text_of(tuple(clauses))).pattern


# --- every step can run where it stands -----------------------------------------------------------


def check_runs(pattern: plan.Pattern, bound: frozenset[str]) -> frozenset[str]:
    """Assert that no step reads what is not bound before; returns what is bound at the end."""
    known = set(bound)
    for step in pattern.steps:
        match step:
            case plan.Scan():
                assert step.variable not in known
                known.add(step.variable)
                for predicate in step.predicates:
                    assert ex.variables_of(predicate) == {step.variable}
            case plan.Expand():
                assert step.source in known
                assert step.target_is_bound == (step.target in known)
                new = {step.edge_variable} - {None}
                if not step.target_is_bound:
                    new.add(step.target)
                assert not new & known
                for predicate in step.predicates:
                    assert len(ex.variables_of(predicate)) == 1
                    assert ex.variables_of(predicate) <= new
                known |= {name for name in new if name is not None}
                if step.path_variable is not None:
                    assert step.path_variable not in known
                    known.add(step.path_variable)
            case plan.FilterRows():
                assert step.predicates
                assert all(ex.variables_of(predicate) <= known for predicate in step.predicates)
            case plan.Exclude():
                check_runs(step.pattern, frozenset(known))
            case plan.Exists():
                assert step.alternatives
                for alternative in step.alternatives:
                    check_runs(alternative, frozenset(known))
            case plan.Extend():
                inner = check_runs(step.pattern, frozenset(known))
                named = {name for name in inner - known if "#" not in name or name[0] != "_"}
                assert named == set(step.introduces)
                known |= set(step.introduces)
    return frozenset(known)


@given(model.patterns(reuse_names=True))
def test_every_step_reads_only_what_was_bound_before(clauses):
    check_runs(planned(clauses), frozenset())


# --- nothing is lost, nothing is added ------------------------------------------------------------

Signature = tuple[frozenset[tuple[object, int]], ...]


def frozen(things: Iterable[object]) -> frozenset[tuple[object, int]]:
    return frozenset(Counter(things).items())


def _empty_parts() -> tuple[list[object], ...]:
    return [], [], [], [], []


def expected_signature(clauses: tuple[model.Clause, ...]) -> Signature:
    """What a block says, as multisets: hops, conditions, negations, alternatives, optionals."""
    parts = hops, conditions, exclusions, disjunctions, optionals = _empty_parts()
    for clause in clauses:
        match clause:
            case model.Bind():
                if clause.key is not None:
                    conditions.append((clause.variable, clause.key))
            case model.Hop():
                hops.append(hop_signature(clause))
            case model.Condition():
                conditions.append(clause.number)
            case model.Missing():
                conditions.append((clause.variable, "missing"))
            case model.Not():
                exclusions.append(expected_signature(clause.clauses))
            case model.AnyOf():
                disjunctions.append(frozen(map(expected_signature, clause.alternatives)))
            case model.Optional():
                optionals.append(expected_signature(clause.clauses))
    return tuple(frozen(part) for part in parts)


def hop_signature(hop: model.Hop) -> tuple[object, ...]:
    ends: object = (hop.left, hop.right)
    if hop.direction == "in":
        ends = (hop.right, hop.left)
    elif hop.direction == "both" and not hop.one_way:
        ends = frozenset((hop.left, hop.right))
    return (hop.word, ends, hop.direction == "both", hop.minimum, hop.maximum, hop.edge, hop.path)


def plan_signature(pattern: plan.Pattern) -> Signature:
    parts = hops, conditions, exclusions, disjunctions, optionals = _empty_parts()
    for step in pattern.steps:
        match step:
            case plan.Scan():
                conditions += map(condition_signature, step.predicates)
            case plan.Expand():
                hops.append(expand_signature(step))
                conditions += map(condition_signature, step.predicates)
            case plan.FilterRows():
                conditions += map(condition_signature, step.predicates)
            case plan.Exclude():
                exclusions.append(plan_signature(step.pattern))
            case plan.Exists():
                disjunctions.append(frozen(map(plan_signature, step.alternatives)))
            case plan.Extend():
                optionals.append(plan_signature(step.pattern))
    return tuple(frozen(part) for part in parts)


def plain(name: str) -> str:
    """The variable as the text calls it."""
    return name.partition("#")[0]


def expand_signature(step: plan.Expand) -> tuple[object, ...]:
    one_way = not step.reversible
    source, target = plain(step.source), plain(step.target)
    ends: object = (source, target)
    if step.direction == "in":
        ends = (target, source)
    elif step.direction == "both" and not one_way:
        ends = frozenset((source, target))
    word = step.edge_type[0].lower() + step.edge_type[1:]
    edge = plain(step.edge_variable) if step.edge_variable else None
    path = plain(step.path_variable) if step.path_variable else None
    return (word, ends, step.direction == "both", step.minimum, step.maximum, edge, path)


def condition_signature(predicate: ex.Expression) -> object:
    if isinstance(predicate, ex.IsNull):
        (name,) = ex.variables_of(predicate)
        return (plain(name), "missing")
    (constant,) = (part.value for part in ex.walk(predicate) if isinstance(part, ex.Constant))
    if isinstance(constant, str):
        (name,) = ex.variables_of(predicate)
        return (plain(name), constant)
    return constant


@given(model.patterns(reuse_names=True))
def test_every_clause_appears_exactly_once(clauses):
    assert plan_signature(planned(clauses)) == expected_signature(clauses)


@given(st.data())
def test_order_of_clauses_changes_neither_hops_nor_conditions(data):
    clauses = data.draw(model.patterns())
    shuffled = tuple(data.draw(st.permutations(clauses)))
    try:
        steps = planned(shuffled)
    except QueryTypeError as error:
        # Names resolve from top to bottom, so not every order is a query.
        assert error.diagnostic in ("T6", "T9", "T5", None)
        return
    if binds_first(shuffled):
        check_runs(steps, frozenset())
        assert plan_signature(steps) == expected_signature(clauses)


def binds_first(clauses: tuple[model.Clause, ...]) -> bool:
    """Whether every block follows the variables it shares with its surroundings.

    Otherwise the same text means something else: a name used in a block before it is bound
    outside is local to that block.
    """
    outer = {name for clause in clauses for name in introduced(clause)}
    seen: set[str] = set()
    for clause in clauses:
        if isinstance(clause, model.Not | model.AnyOf | model.Optional):
            own = set(introduced(clause))
            if (set(all_names(clause)) & (outer - own)) - seen:
                return False
        seen |= set(introduced(clause))
    return True


def introduced(clause: model.Clause) -> Iterator[str]:
    match clause:
        case model.Bind():
            yield clause.variable
        case model.Hop():
            yield from (n for n in (clause.edge, clause.path) if n)
        case model.Optional():
            for inner in clause.clauses:
                yield from introduced(inner)


def all_names(clause: model.Clause) -> Iterator[str]:
    match clause:
        case model.Not() | model.Optional():
            for inner in clause.clauses:
                yield from all_names(inner)
        case model.AnyOf():
            for alternative in clause.alternatives:
                for inner in alternative:
                    yield from all_names(inner)
        case _:
            yield from model.mentions(clause)


# --- where steps start, and which way they go -----------------------------------------------------


def expansions(pattern: plan.Pattern) -> Iterator[plan.Expand]:
    for step in pattern.steps:
        match step:
            case plan.Expand():
                yield step
            case plan.Exclude() | plan.Extend():
                yield from expansions(step.pattern)
            case plan.Exists():
                for alternative in step.alternatives:
                    yield from expansions(alternative)


def one_way_hops(clauses: tuple[model.Clause, ...]) -> Iterator[model.Hop]:
    for clause in clauses:
        match clause:
            case model.Hop() if clause.one_way:
                yield clause
            case model.Not() | model.Optional():
                yield from one_way_hops(clause.clauses)
            case model.AnyOf():
                for alternative in clause.alternatives:
                    yield from one_way_hops(alternative)


@given(model.patterns(reuse_names=True))
def test_one_way_hops_start_at_their_left_end(clauses):
    written = Counter((hop.left, hop.direction, hop.word) for hop in one_way_hops(clauses))
    walked = Counter(
        (plain(step.source), step.direction, step.edge_type[0].lower() + step.edge_type[1:])
        for step in expansions(planned(clauses))
        if not step.reversible
    )
    assert walked == written


@given(model.patterns())
def test_condition_on_one_variable_stands_where_the_variable_is_bound(clauses):
    bound_by_step: set[str] = set()
    for step in planned(clauses).steps:
        match step:
            case plan.FilterRows():
                for predicate in step.predicates:
                    read = ex.variables_of(predicate)
                    assert len(read) != 1 or not read <= bound_by_step
            case plan.Scan():
                bound_by_step.add(step.variable)
            case plan.Expand():
                bound_by_step |= {step.target, step.edge_variable or step.target}


@given(model.patterns())
def test_first_scan_is_pinned_by_key_if_any_two_way_variable_is(clauses):
    pinned = {c.variable for c in clauses if isinstance(c, model.Bind) and c.key is not None}
    targets = {
        c.right for c in clauses if isinstance(c, model.Hop) and c.one_way and c.right != c.left
    }
    first = next(step for step in planned(clauses).steps if isinstance(step, plan.Scan))
    if pinned - targets:
        assert first.variable in pinned - targets


@pytest.mark.parametrize(
    ("clauses", "first"),
    [
        ('$a: Author $b: Book { isbn: "i" }', "b"),
        ('$a: Author $b: Book "i" = $b.isbn', "b"),
        ('$a: Author { name: "x" } $b: Book { isbn: $p }', "b"),
        ('$a: Author $b: Book { title: "x" }', "b"),
        ('$a: Author $a.fame > 3 $b: Book { title: "x" }', "b"),
        ("$a: Author $b: Book $b.pages > 3", "b"),
        ("$a: Author $b: Book", "a"),
        ('$a: Author { name: "x" } $s: Shop { region: "r" }', "a"),
        ('$a: Author { name: "x" } $s: Shop { region: "r", code: 1 }', "s"),
        ('$a: Author { name: "x" } $b: Book $b.isbn = $b.title', "a"),
        ('$a: Author { name: "x" } $b: Book $b.isbn != "i"', "a"),
    ],
)
def test_scan_starts_at_the_best_pinned_variable(clauses: str, first: str):
    step = matching(clauses, parameters="$p: String").pattern.steps[0]
    assert isinstance(step, plan.Scan)
    assert step.variable == first


def test_hop_with_a_minimum_or_a_path_is_never_walked_from_its_target():
    for hop in ("$x cites{2,3} $b", "$x cites $b via $r"):
        steps = matching(f'$b: Book {{ isbn: "i" }} {hop}').pattern.steps
        (walked,) = (step for step in steps if isinstance(step, plan.Expand))
        assert (walked.source, walked.target) == ("x", "b")


def test_reversed_hop_flips_its_direction_and_keeps_the_rest():
    _, step = matching('$b: Book { isbn: "i" } $a $w:wrote $b').pattern.steps
    assert step == plan.Expand("b", "Book", "a", "Author", "Wrote", "in", 1, 1, "w")
    _, step = matching('$b: Book { isbn: "i" } $x <cites>{1,3} $b').pattern.steps
    assert step == plan.Expand("b", "Book", "x", "Book", "Cites", "both", 1, 3)


def test_conditions_on_parameters_alone_come_first():
    first, *_ = matching("$b: Book ($p) = 3", parameters="$p: I32").pattern.steps
    assert isinstance(first, plan.FilterRows)


def test_negation_runs_as_soon_as_it_can():
    kinds = [
        type(step)
        for step in matching(
            '$a: Author { handle: "h" } $a wrote $b not { $a knows $_ }'
        ).pattern.steps
    ]
    assert kinds == [plan.Scan, plan.Exclude, plan.Expand]


def test_equal_conditions_and_hops_are_all_kept():
    pattern = matching("$b: Book $b.pages > 3 $b.pages > 3 $b cites $c $b cites $c").pattern
    scan, first, second = pattern.steps
    assert isinstance(scan, plan.Scan)
    assert len(scan.predicates) == 2
    assert isinstance(first, plan.Expand)
    assert isinstance(second, plan.Expand)
    assert (first.target_is_bound, second.target_is_bound) == (False, True)


def test_compiling_leaves_the_catalog_alone_and_is_repeatable():
    before = repr(catalog())
    text = "$a: Author not { $a wrote $b } $b: Book any { $a knows $_ } optional { $b cites $c }"
    assert matching(text) == matching(text)
    assert hash(matching(text)) == hash(matching(text))
    assert repr(catalog()) == before
