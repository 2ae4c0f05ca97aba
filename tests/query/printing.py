"""From the syntax tree of a query back to text, in one layout: the parser has to read its own tree.

Comments are not part of the tree and do not come back. Parentheses are printed where they matter,
also at the few places where a clause would be read together with the one in front of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import assert_never

from omnigraph.query.explain import show_constant
from omnigraph.syntax import query_ast as ast
from tests.query.printing_expressions import print_expression

_INDENT = "    "
_INLINE_MAX = 80
"""Longest block that is kept on one line, without its indentation."""
_TEST_WORDS = ("contains", "starts_with", "in", "is")


def print_query_file(file: ast.QueryFile) -> str:
    """All queries of a file, separated by empty lines."""
    return "\n".join(print_query(query) for query in file.queries)


def print_query(query: ast.Query) -> str:
    """One query, ending with a newline."""
    parameters = ", ".join(f"${p.name}: {p.type}" for p in query.parameters)
    head = [f"query {query.name}({parameters})"]
    if query.description is not None:
        head.append(f"{_INDENT}@description({show_constant(query.description)})")
    if query.instruction is not None:
        head.append(f"{_INDENT}@instruction({show_constant(query.instruction)})")
    if len(head) == 1:
        head[0] += " {"
    else:
        head.append("{")
    if isinstance(query.body, ast.ReadBody):
        body = _read(query.body)
    else:
        body = [line for statement in query.body.statements for line in _statement(statement)]
    return "\n".join([*head, *_indented(body), "}", ""])


# --- reads ----------------------------------------------------------------------------------------


def _read(read: ast.ReadBody) -> list[str]:
    lines = [line for stage in read.stages for line in _part(stage, "with")]
    return [*lines, *_part(read, "return")]


def _part(read: ast.ReadBody, word: str) -> list[str]:
    """A match, which a stage may leave out, and what it returns or hands on."""
    lines = ["match {", *_indented(_clauses(read.clauses)), "}"] if read.clauses else []
    if read.distinct:
        word = f"{word} distinct"
    lines += _block(word, [_item(item) for item in read.items])
    if read.having:
        lines += ["having {", *_indented(_clauses(read.having)), "}"]
    if read.order:
        lines += _block("order", [_key(key) for key in read.order])
    if read.per is not None:
        per = read.per
        lines.append(f"limit {_count(per.count)} per {print_expression(per.key)}")
    counts = [f"{w} {_count(c)}" for w, c in (("limit", read.limit), ("offset", read.offset)) if c]
    if counts:
        lines.append(" ".join(counts))
    return lines


def _item(item: ast.ReturnItem) -> str:
    text = print_expression(item.expression)
    return f"{text} as {item.alias}" if item.alias is not None else text


def _key(key: ast.OrderKey) -> str:
    text = print_expression(key.expression)
    if key.descending is None:
        return text
    return f"{text} desc" if key.descending else f"{text} asc"


def _count(count: ast.Count) -> str:
    return f"${count.value.name}" if isinstance(count.value, ast.Variable) else str(count.value)


# --- clauses --------------------------------------------------------------------------------------


def print_clause(clause: ast.Clause) -> str:
    """One clause of a match, over several lines if it is a block."""
    return "\n".join(_clause(clause, following=""))


def _clauses(clauses: Sequence[ast.Clause]) -> list[str]:
    return _sequence([(clause,) for clause in clauses])


def _sequence(alternatives: Sequence[tuple[ast.Clause, ...]]) -> list[str]:
    """The lines of clauses, single or grouped, that follow each other without any separator."""
    blocks: list[list[str]] = []
    following = ""
    for group in reversed(alternatives):
        if len(group) == 1:
            blocks.append(_clause(group[0], following))
        else:
            blocks.append(["all {", *_indented(_clauses(group)), "}"])
        following = blocks[-1][0]
    return [line for block in reversed(blocks) for line in block]


def _clause(clause: ast.Clause, following: str) -> list[str]:
    """The lines of one clause, given the first line of the next one."""
    match clause:
        case ast.Binding():
            return [_binding(clause)]
        case ast.Hop():
            return [_hop(clause)]
        case ast.Filter():
            return [_filter(clause, following)]
        case ast.TypeTest():
            negated = "not " if clause.negated else ""
            return [f"${clause.variable.name} is {negated}{clause.type_name}"]
        case ast.NullTest():
            return [f"{_leading(clause.operand)} is {'not ' if clause.negated else ''}null"]
        case ast.Unnest():
            items = print_expression(clause.items)
            if following.startswith("(") and isinstance(_last_operand(clause.items), ast.AliasRef):
                items = f"({items})"
            return [f"unnest ${clause.variable.name} in {items}"]
        case ast.Not():
            return ["not {", *_indented(_clauses(clause.clauses)), "}"]
        case ast.Optional():
            return ["optional {", *_indented(_clauses(clause.clauses)), "}"]
        case ast.Any():
            return ["any {", *_indented(_sequence(clause.alternatives)), "}"]
        case _:
            assert_never(clause)


def _binding(clause: ast.Binding) -> str:
    head = f"${clause.variable.name}: {clause.type_name}"
    if not clause.pairs:
        return head
    return f"{head} {{ {', '.join(_pair(pair) for pair in clause.pairs)} }}"


def _pair(pair: ast.Pair) -> str:
    return f"{pair.name}: {print_expression(pair.value)}"


def _hop(clause: ast.Hop) -> str:
    edge = f"<{clause.edge_word}>" if clause.undirected else clause.edge_word
    if clause.edge_variable is not None:
        edge = f"${clause.edge_variable.name}:{edge}"
    if clause.bounds is not None:
        edge += f"{{{_bound(clause.bounds.minimum)},{_bound(clause.bounds.maximum)}}}"
    kind = "" if clause.path_kind == "one" else f"{clause.path_kind} "
    path = f" via {kind}${clause.path_variable.name}" if clause.path_variable is not None else ""
    if clause.path_step is not None:
        near, far = clause.path_step
        path += f" from ${near.name} to ${far.name}"
    if clause.path_weight is not None:
        # What follows could go on with it.
        weight = print_expression(clause.path_weight)
        is_plain = isinstance(clause.path_weight, ast.PropertyRef)
        path += f" by {weight}" if is_plain else f" by ({weight})"
    return f"${clause.left.name} {edge} ${clause.right.name}{path}"


def _bound(bound: int | ast.Variable | None) -> str:
    if isinstance(bound, ast.Variable):
        return f"${bound.name}"
    return "" if bound is None else str(bound)


def _filter(clause: ast.Filter, following: str) -> str:
    left, right = clause.left, clause.right
    left_text, right_text = _leading(left), print_expression(right)
    # A word such as `in` at the start of the next clause would be taken for a test of the call.
    if _is_bare_predicate(clause) and not following.startswith(_TEST_WORDS):
        return left_text
    if clause.operator[0].isalpha() and isinstance(left, ast.Variable) and right_text[0] == "$":
        # A variable, a word and a variable would be a hop.
        left_text = f"({left_text})"
    if following.startswith("(") and isinstance(_last_operand(right), ast.AliasRef):
        # A word in front of a parenthesis would be a call.
        right_text = f"({right_text})"
    return f"{left_text} {clause.operator} {right_text}"


def _is_bare_predicate(clause: ast.Filter) -> bool:
    left, right = clause.left, clause.right
    is_call = isinstance(left, ast.SearchCall) and left.function in ast.TEXT_PREDICATES
    is_block = isinstance(left, ast.BlockValue) and left.function == "exists"
    return (
        (is_call or is_block)
        and clause.operator == "="
        and isinstance(right, ast.Literal)
        and right.value is True
    )


def _leading(expression: ast.Expression) -> str:
    """The first operand of a clause: its sign would subtract from the clause in front of it."""
    text = print_expression(expression)
    return f"({text})" if text.startswith("-") else text


def _last_operand(expression: ast.Expression) -> ast.Expression:
    while isinstance(expression, ast.Arithmetic):
        expression = expression.right
    return expression


def print_block(block: ast.BlockValue) -> str:
    """`count { … }` and its kin, on one line."""
    parts = _clauses(block.clauses)
    if block.items:
        word = "return distinct" if block.distinct else "return"
        parts.append(f"{word} {{ {', '.join(map(_item, block.items))} }}")
    if block.order:
        parts.append(f"order {{ {', '.join(map(_key, block.order))} }}")
    if block.limit is not None:
        parts.append(f"limit {_count(block.limit)}")
    return f"{block.function} {{ {' '.join(line.strip() for line in parts)} }}"


# --- writes ---------------------------------------------------------------------------------------


def _statement(statement: ast.Statement) -> list[str]:
    match statement:
        case ast.Insert():
            pairs = [_pair(pair) for pair in statement.assignments]
            return _block(f"insert {statement.type_name}", pairs)
        case ast.Update():
            pairs = [_pair(pair) for pair in statement.assignments]
            bound = f"${statement.variable.name}: " if statement.variable else ""
            lines = _block(f"update {bound}{statement.type_name} set", pairs)
            lines[-1] += f" where {print_predicate(statement.where)}"
            return lines
        case ast.Delete():
            return [f"delete {statement.type_name} where {print_predicate(statement.where)}"]
        case ast.ForEach():
            inner = [line for each in statement.statements for line in _statement(each)]
            items = print_expression(statement.items)
            return [f"for ${statement.variable.name} in {items} {{", *_indented(inner), "}"]
        case _:
            assert_never(statement)


def print_predicate(predicate: ast.Predicate) -> str:
    """The condition of a `where`."""
    match predicate:
        case ast.Comparison():
            return f"{predicate.name} {predicate.operator} {print_expression(predicate.value)}"
        case ast.Membership():
            return f"{predicate.name} in {print_expression(predicate.values)}"
        case ast.PropertyNullTest():
            return f"{predicate.name} is {'not ' if predicate.negated else ''}null"
        case ast.BooleanPredicate():
            operands = [_operand(operand, predicate.operator) for operand in predicate.operands]
            return f" {predicate.operator} ".join(operands)
        case _:
            assert_never(predicate)


def _operand(predicate: ast.Predicate, joined_by: str) -> str:
    text = print_predicate(predicate)
    if isinstance(predicate, ast.BooleanPredicate) and joined_by == "and":
        return f"({text})"
    return text


# --- layout ---------------------------------------------------------------------------------------


def _indented(lines: Iterable[str]) -> list[str]:
    return [_INDENT + line for line in lines]


def _block(head: str, parts: list[str]) -> list[str]:
    """`head { parts }`, on one line if that is short, else with a line for each part."""
    inline = f"{head} {{ {', '.join(parts)} }}"
    if len(inline) <= _INLINE_MAX:
        return [inline]
    # No comma behind the last part: not every block allows one.
    return [f"{head} {{", *_indented(",\n".join(parts).split("\n")), "}"]
