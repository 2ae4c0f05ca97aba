"""Translates `MATCH` to clauses of a match: nodes, hops, searches, and distinct relationships.

Two rules of Cypher need additional clauses. First, every path makes a row: relationships get
variables if several may join the same nodes, and a hop that returns each node once is used only if
repeated rows make no difference. Second, a `MATCH` uses no relationship twice: conditions compare
them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from omnigraph.model.records import dataclass
from omnigraph.model.types import Scalar, ValueType
from omnigraph.schema.catalog import EdgeType
from omnigraph.syntax.tokens import Span
from omnigraph.translate import cypher_ast as ast
from omnigraph.translate.expressions import Expressions
from omnigraph.translate.scope import Bound, Translating, edge_word, identifier, type_name

_CHAIN_MAX = 8
"""Up to this many hops, a fixed number of hops is written out."""


@dataclass(slots=True)
class _Hop:
    """One relationship of a `MATCH`; it gets a variable if it has to be compared with others."""

    type_name: str
    edge: EdgeType | None
    source: str
    target: str
    """`$name` of its ends; their types, if known, follow below."""
    end_types: tuple[str | None, str | None]
    word: str
    is_undirected: bool
    span: Span
    variable: str | None = None
    far: str | None = None
    """Bounds and path of a search; such a hop has no variable."""

    def line(self) -> str:
        """The clause."""
        word = f"<{self.word}>" if self.is_undirected else self.word
        if self.far is not None:
            bounds, path = self.far.split(" ", 1) if " " in self.far else (self.far, "")
            return f"{self.source} {word}{bounds} {self.target} {path}".rstrip()
        name = f"{self.variable}:" if self.variable is not None else ""
        return f"{self.source} {name}{word} {self.target}"

    @property
    def is_single(self) -> bool:
        """Whether at most one edge of its type joins two nodes in its direction."""
        return self.edge is not None and not self.is_undirected and _is_single(self.edge)


@dataclass(frozen=True, slots=True)
class _Matching:
    """The state of translating one `MATCH`."""

    match: ast.CypherMatch
    known: Mapping[str, Bound]
    """The names in scope before it."""
    found: list[str | _Hop]
    later: list[str]
    """Conditions on the variables that it binds."""
    ignores: bool
    """Whether the number of times a row occurs makes no difference."""
    apart: Sequence[ast.Expression]
    """Conditions that may imply that the ends of a path differ."""


class Patterns:
    """Translates the matches of one statement, and tracks the names in scope."""

    def __init__(self, state: Translating, used: frozenset[str]) -> None:
        self._state = state
        self._used = used
        """The Cypher variables that are used anywhere."""
        self.scope: dict[str, Bound] = {}

    def expressions(
        self, scope: Mapping[str, Bound] | None = None, *, has_groups: bool = False
    ) -> Expressions:
        """A translator of expressions over the names in scope, or over other ones."""
        seen = self.scope if scope is None else scope
        return Expressions(self._state, seen, self._block, has_groups=has_groups)

    def _block(self, given: ast.CypherSubquery, scope: Mapping[str, Bound]) -> str:
        """The clauses of a subquery, whose names are local."""
        ignores = given.function == "exists"
        outside = self.scope
        self.scope = dict(scope)
        try:
            found = [
                line for each in given.matches for line in self._matched(each, ignores=ignores)
            ]
        finally:
            self.scope = outside
        return "\n".join(found)

    def clauses(self, stage: ast.CypherStage) -> list[str]:
        """The clauses of all matches of a stage; adds their names to the scope."""
        found: list[str] = []
        ignores = _ignores_repeats(stage.projection)
        apart = [
            condition
            for clause in stage.clauses
            if isinstance(clause, ast.CypherMatch) and clause.where is not None
            for condition in conjuncts(clause.where)
        ]
        for clause in stage.clauses:
            if isinstance(clause, ast.CypherUnwind):
                found.append(self._unnested(clause))
            elif clause.optional:
                inside = self._matched(clause, ignores=ignores, apart=apart)
                found += ["optional {", *inside, "}"]
            else:
                found += self._matched(clause, ignores=ignores, apart=apart)
        return found

    def _unnested(self, clause: ast.CypherUnwind) -> str:
        if isinstance(clause.items, ast.CypherListExpression):
            self._state.fail(
                "`UNWIND` of a list that is written out has no counterpart",
                clause.items.span,
                "make the list a parameter",
            )
        items = self.expressions().value(clause.items, ValueType(Scalar.STRING, is_list=True))
        type_ = items.type.item if items.type is not None else None
        name = self._state.variable(clause.variable)
        self.scope[clause.variable] = Bound("item", f"${name}", type=type_, optional=True)
        return f"unnest ${name} in {items.text}"

    def _matched(
        self, match: ast.CypherMatch, *, ignores: bool, apart: Sequence[ast.Expression] = ()
    ) -> list[str]:
        """The clauses of one `MATCH`; ``apart`` are conditions that may imply that nodes differ."""
        found: list[str | _Hop] = []
        later: list[str] = []
        where = conjuncts(match.where) if match.where is not None else []
        work = _Matching(match, dict(self.scope), found, later, ignores, [*apart, *where])
        for pattern in match.patterns:
            self._pattern(pattern, work)
        later = [
            *self._distinct_relationships([each for each in found if isinstance(each, _Hop)]),
            *later,
        ]
        lines = [each.line() if isinstance(each, _Hop) else each for each in found] + later
        if match.where is not None:
            lines += self.expressions().clauses(match.where)
        return lines

    def _pattern(self, pattern: ast.CypherPattern, work: _Matching) -> None:
        if not pattern.relationships and pattern.nodes[0].label is None:
            (only,) = pattern.nodes
            if only.variable not in self.scope:
                self._state.fail("a node without a label has no counterpart", only.span)
        first, implied = pattern.nodes[0], None
        if first.variable is None and pattern.relationships:
            towards = _flipped(pattern.relationships[0])
            edge = self._state.edge_type(towards.type_name or "", towards.span)
            implied = self._implied(edge, towards)
        previous = self._node(first, work, implied)
        for relationship, node in zip(pattern.relationships, pattern.nodes[1:], strict=True):
            edge = self._state.edge_type(relationship.type_name or "", relationship.span)
            following = self._node(node, work, self._implied(edge, relationship))
            self._infer_end_types(edge, relationship, previous, following)
            self._hop(relationship, edge, (previous, following), pattern, work)
            previous = following
        if pattern.path in self._used and pattern.path not in self.scope:
            self._state.fail(
                "the path of a pattern with every path has no counterpart",
                pattern.span,
                "name a path of `shortestPath(…)`",
            )

    def _implied(
        self, edge: EdgeType | None, relationship: ast.CypherRelationshipPattern
    ) -> str | None:
        """The type of its far end that follows from the hop alone."""
        if edge is None or (relationship.direction == "both" and edge.source != edge.target):
            return None
        return edge.source if relationship.direction == "in" else edge.target

    def _node(
        self, node: ast.CypherNodePattern, work: _Matching, implied: str | None = None
    ) -> str:
        """The Cypher name of a node in scope, after its binding is written."""
        name = node.variable
        is_optional = work.match.optional
        if name is None:
            # No Cypher name has a space.
            name = f" {self._state.variable(node.label or 'n')}"
            self.scope[name] = Bound("node", f"${name[1:]}")
        elif name not in self.scope:
            variable = self._state.variable(name)
            self.scope[name] = Bound("node", f"${variable}", optional=is_optional)
        bound = self.scope[name]
        if bound.kind != "node":
            self._state.fail(f"`{name}` is no node here", node.span)
        if bound.optional and not is_optional and name in work.known:
            self._state.fail(
                f"`{name}` of an `OPTIONAL MATCH` in a later `MATCH` has no counterpart",
                node.span,
                "match it in the first place, or move the later pattern into the optional one",
            )
        type_ = None
        if node.label is not None:
            type_ = self._state.node_type(node.label, node.span)
            self.scope[name] = bound = replace(bound, type_name=type_)
        inline: list[str] = []
        for property_name, value in node.pairs:
            property_ = self._state.property(bound, property_name, node.span)
            spelled = property_.name if property_ is not None else identifier(property_name)
            expected = property_.type if property_ is not None else None
            if expected is not None and expected.is_list:
                self._state.fail("a whole list in a pattern has no counterpart", value.span)
            text = self.expressions().value(value, expected).text
            if isinstance(value, ast.CypherLiteral | ast.CypherParameter) and type_ is not None:
                inline.append(f"{spelled}: {text}")
            else:
                work.later.append(f"{bound.text}.{spelled} = {text}")
        if type_ is not None and (inline or type_ != implied):
            pairs = f" {{ {', '.join(inline)} }}" if inline else ""
            work.found.append(f"{bound.text}: {type_}{pairs}")
        return name

    def _infer_end_types(
        self,
        edge: EdgeType | None,
        relationship: ast.CypherRelationshipPattern,
        left: str,
        right: str,
    ) -> None:
        """Infer the types of the ends from the edge type, and refuse an edge that is impossible."""
        if edge is None:
            return
        ways = [(left, right), (right, left)]
        if relationship.direction != "both":
            ways = ways[1:] if relationship.direction == "in" else ways[:1]
        fitting = [
            (source, target)
            for source, target in ways
            if self._state.can_be(self.scope[source].type_name, edge.source)
            and self._state.can_be(self.scope[target].type_name, edge.target)
        ]
        if not fitting:
            self._state.fail(
                f"nothing matches this: `{edge.name}` goes from {edge.source} to {edge.target}",
                relationship.span,
                "turn the arrow, or mend the labels",
            )
        ends = (edge.source, edge.target)
        if len(fitting) == 1 or edge.source == edge.target:
            for name, end in zip(fitting[0], ends, strict=True):
                if self.scope[name].type_name is None:
                    self.scope[name] = replace(self.scope[name], type_name=end)

    # --- hops ------------------------------------------------------------------------------------

    def _hop(
        self,
        relationship: ast.CypherRelationshipPattern,
        edge: EdgeType | None,
        nodes: tuple[str, str],
        pattern: ast.CypherPattern,
        work: _Matching,
    ) -> None:
        left, right = nodes
        source, target = (right, left) if relationship.direction == "in" else (left, right)
        is_undirected = relationship.direction == "both"
        if is_undirected and not self._joins_one_type(edge, left, right):
            # The types of the ends allow only one direction.
            is_undirected = False
            if edge is not None and not self._state.can_be(self.scope[left].type_name, edge.source):
                source, target = right, left
        lengths = relationship.lengths
        if lengths is not None and relationship.choice == "every":
            if lengths.minimum == lengths.maximum == 1:
                lengths = None
            elif lengths.minimum == lengths.maximum and 1 < lengths.minimum <= _CHAIN_MAX:
                self._chain(relationship, edge, (source, target), pattern, work)
                return
        given = relationship.type_name or ""
        ends = (self.scope[source], self.scope[target])
        hop = _Hop(
            edge.name if edge is not None else type_name(given),
            edge,
            ends[0].text,
            ends[1].text,
            (ends[0].type_name, ends[1].type_name),
            edge.name[0].lower() + edge.name[1:] if edge is not None else edge_word(given),
            is_undirected,
            relationship.span,
        )
        work.found.append(hop)
        name = relationship.variable if relationship.variable in self._used else None
        if lengths is not None:
            if name is not None or relationship.pairs:
                self._state.fail(
                    "the relationships of a path as a list have no counterpart", relationship.span
                )
            hop.far = self._far(relationship, hop, nodes, pattern, work)
        elif name is not None or relationship.pairs or not (work.ignores or hop.is_single):
            if name is not None and name in self.scope:
                self._state.fail(
                    f"`{name}` is bound already, and a relationship is matched once",
                    relationship.span,
                    "give it a new name, and compare the two",
                )
            hop.variable = f"${self._state.variable(relationship.variable or hop.word)}"
            bound = Bound("edge", hop.variable, hop.type_name if edge is not None else None)
            if name is not None:
                self.scope[name] = replace(bound, optional=work.match.optional)
            for property_name, value in relationship.pairs:
                property_ = self._state.property(bound, property_name, relationship.span)
                spelled = property_.name if property_ is not None else identifier(property_name)
                expected = property_.type if property_ is not None else None
                text = self.expressions().value(value, expected).text
                work.later.append(f"{hop.variable}.{spelled} = {text}")

    def _joins_one_type(self, edge: EdgeType | None, left: str, right: str) -> bool:
        if edge is not None:
            return self._state.can_be(edge.source, edge.target)
        types = {self.scope[left].type_name, self.scope[right].type_name}
        return len(types) == 1 or None in types

    def _chain(
        self,
        relationship: ast.CypherRelationshipPattern,
        edge: EdgeType | None,
        nodes: tuple[str, str],
        pattern: ast.CypherPattern,
        work: _Matching,
    ) -> None:
        """A fixed number of hops, one after the other."""
        if relationship.variable in self._used:
            self._state.fail(
                "the relationships of a path as a list have no counterpart", relationship.span
            )
        assert relationship.lengths is not None
        direction: ast.Direction = "both" if relationship.direction == "both" else "out"
        one = replace(relationship, variable=None, direction=direction, lengths=None)
        here, target = nodes
        for step in range(relationship.lengths.minimum):
            there = target
            if step < relationship.lengths.minimum - 1:
                there = f" {self._state.variable('n')}"
                type_ = edge.target if edge is not None else None
                self.scope[there] = Bound("node", f"${there[1:]}", type_)
            self._hop(one, edge, (here, there), pattern, work)
            here = there

    def _far(
        self,
        relationship: ast.CypherRelationshipPattern,
        hop: _Hop,
        nodes: tuple[str, str],
        pattern: ast.CypherPattern,
        work: _Matching,
    ) -> str:
        """Bounds and path of a search, which finds each node once, at its distance."""
        lengths = relationship.lengths
        assert lengths is not None
        fail = self._state.fail
        if lengths.maximum is not None and lengths.maximum < max(lengths.minimum, 1):
            fail("a path of this length does not exist", lengths.span)
        path = ""
        if lengths.minimum > 1:
            fail(
                "paths of at least two relationships, whatever the shortest, have no counterpart",
                lengths.span,
                f"`{{{lengths.minimum},…}}` here means nodes whose shortest distance is that",
            )
        has_one_way = hop.edge is not None and hop.edge.cardinality.maximum == 1
        if relationship.choice == "every" and not work.ignores and not has_one_way:
            fail(
                "a row for every path has no counterpart: here each node is found once",
                lengths.span,
                "if each node is meant, say `WITH DISTINCT` or `RETURN DISTINCT`",
            )
        reaches_start = relationship.choice == "every" or self._state.dialect == "kuzu"
        if reaches_start and lengths.minimum and not _implies_distinct(work.apart, nodes, pattern):
            self._state.note(
                "the start of the path, reached again over a cycle, is not found", lengths.span
            )
        if relationship.choice != "every" and pattern.path in self._used and pattern.path:
            if len(pattern.relationships) != 1:
                fail("the path of several relationships has no counterpart", pattern.span)
            name = f"${self._state.variable(pattern.path)}"
            self.scope[pattern.path] = Bound("path", name, optional=work.match.optional)
            path = f" via {'all ' if relationship.choice == 'all' else ''}{name}"
        elif relationship.choice == "all":
            path = f" via all ${self._state.variable('path')}"
        most = "" if lengths.maximum is None else str(lengths.maximum)
        return f"{{{lengths.minimum},{most}}}{path}"

    def _distinct_relationships(self, hops: Sequence[_Hop]) -> list[str]:
        """Conditions that hops of one type differ: no relationship occurs twice in one `MATCH`."""
        found: list[str] = []
        if self._state.dialect == "kuzu":
            return found
        for at, one in enumerate(hops):
            for other in hops[at + 1 :]:
                if one.type_name != other.type_name or self._cannot_be_same(one, other):
                    continue
                if one.far is not None or other.far is not None:
                    self._state.fail(
                        "a path beside a relationship of its type has no counterpart, since Cypher"
                        " takes none of them twice",
                        other.span,
                        "write it as a `MATCH` of its own, if it may take them twice",
                    )
                if one.is_single and other.is_single and one.target == other.target:
                    found.append(f"{one.source} != {other.source}")
                elif one.is_single and other.is_single and one.source == other.source:
                    found.append(f"{one.target} != {other.target}")
                else:
                    for hop in (one, other):
                        hop.variable = hop.variable or f"${self._state.variable(hop.word)}"
                    found.append(f"{one.variable} != {other.variable}")
        return found

    def _cannot_be_same(self, one: _Hop, other: _Hop) -> bool:
        """Whether two hops cannot be the same edge, since its ends would have other types."""
        if one.is_undirected or other.is_undirected:
            return False
        return any(
            mine is not None and theirs is not None and not self._state.can_be(mine, theirs)
            for mine, theirs in zip(one.end_types, other.end_types, strict=True)
        )


def _flipped(relationship: ast.CypherRelationshipPattern) -> ast.CypherRelationshipPattern:
    """The relationship seen from its other end."""
    directions: dict[ast.Direction, ast.Direction] = {"out": "in", "in": "out", "both": "both"}
    return replace(relationship, direction=directions[relationship.direction])


def _is_single(edge: EdgeType) -> bool:
    """Whether at most one edge of a type goes from one node to another."""
    unique = {frozenset(columns) for columns in (edge.key_columns, *edge.unique)}
    return frozenset(("src", "dst")) in unique or edge.cardinality.maximum == 1


def _implies_distinct(
    conditions: Sequence[ast.Expression], nodes: tuple[str, str], pattern: ast.CypherPattern
) -> bool:
    """Whether one of the conditions implies that the two ends are different nodes."""
    left, right = nodes
    pairs = {(node.variable, name): value for node in pattern.nodes for name, value in node.pairs}

    def node_of(side: ast.Expression) -> str | None:
        if isinstance(side, ast.CypherCall) and side.name in ("id", "elementid"):
            (side,) = side.arguments or (side,)
        return side.name if isinstance(side, ast.CypherVariable) else None

    def differs(one: ast.Expression, other: ast.Expression) -> bool:
        """Whether a property differs between the ends, or from the value that fixes one."""
        if not (
            isinstance(one, ast.CypherProperty) and isinstance(one.subject, ast.CypherVariable)
        ):
            return False
        if one.subject.name not in (left, right):
            return False
        far = left if one.subject.name == right else right
        if isinstance(other, ast.CypherProperty) and isinstance(other.subject, ast.CypherVariable):
            return (other.subject.name, other.name) == (far, one.name)
        return (far, one.name) in pairs and ast.same(pairs[far, one.name], other)

    return any(
        {node_of(each.left), node_of(each.right)} == {left, right}
        or differs(each.left, each.right)
        or differs(each.right, each.left)
        for each in conditions
        if isinstance(each, ast.CypherBinary) and each.operator == "<>"
    )


def _ignores_repeats(projection: ast.CypherProjection) -> bool:
    """Whether the number of times a row of the match occurs makes no difference."""
    expressions = [item.expression for item in projection.items]
    if any(ast.has_aggregate(each) for each in expressions):
        return all(ast.ignores_repeats(each) for each in expressions)
    return projection.distinct


def conjuncts(condition: ast.Expression) -> list[ast.Expression]:
    """The conditions that `AND` joins."""
    if isinstance(condition, ast.CypherBinary) and condition.operator == "AND":
        return [*conjuncts(condition.left), *conjuncts(condition.right)]
    return [condition]
