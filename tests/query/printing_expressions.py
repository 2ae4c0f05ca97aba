"""Expressions of the syntax tree as `.gq` text, on one line.

What is printed parses to an equal tree, apart from positions. The only parentheses printed are
those that matter: around operands that bind less tightly.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

from omnigraph.query.explain import show_constant
from omnigraph.syntax import query_ast as ast


def print_expression(expression: ast.Expression) -> str:
    """One expression, on one line."""
    match expression:
        case ast.Literal():
            return show_constant(expression.value)
        case ast.ListLiteral():
            return f"[{_comma_separated(expression.items)}]"
        case ast.NullLiteral():
            return "null"
        case ast.Variable():
            return f"${expression.name}"
        case ast.PropertyRef():
            return f"${expression.variable.name}.{expression.name}"
        case ast.EntityRef():
            return f"${expression.variable.name}.*"
        case ast.AliasRef():
            return expression.name
        case ast.Now():
            return "now()"
        case ast.SearchCall() | ast.FunctionCall():
            return f"{expression.function}({_comma_separated(expression.arguments)})"
        case ast.TextQuery():
            return f"{expression.kind}({print_expression(expression.text)})"
        case ast.Aggregate():
            return _aggregate(expression)
        case ast.Arithmetic():
            return _arithmetic(expression)
        case ast.BlockValue():
            from tests.query.printing import print_block

            return print_block(expression)
        case ast.Conditional():
            return _conditional(expression)
        case ast.ListItem():
            several = print_expression(expression.list)
            if isinstance(expression.list, ast.Arithmetic):
                several = f"({several})"
            return f"{several}[{print_expression(expression.index)}]"
        case _:
            assert_never(expression)


def _comma_separated(expressions: Iterable[ast.Expression]) -> str:
    return ", ".join(print_expression(expression) for expression in expressions)


def _aggregate(aggregate: ast.Aggregate) -> str:
    if aggregate.argument is None:
        return f"{aggregate.function}(*)"
    text = print_expression(aggregate.argument)
    if aggregate.fraction is not None:
        text = f"{text}, {print_expression(aggregate.fraction)}"
    if aggregate.distinct:
        text = f"distinct {text}"
    elif text.startswith("distinct "):
        # An alias of that name, with an operator behind it.
        text = f"({text})"
    return f"{aggregate.function}({text})"


_TIGHTNESS = {"+": 1, "-": 1, "*": 2, "/": 2, "%": 2}


def _arithmetic(expression: ast.Arithmetic) -> str:
    tightness = _TIGHTNESS[expression.operator]
    # Operators of one tightness are read from the left: on the right they need parentheses.
    left = _arithmetic_operand(expression.left, tightness)
    right = _arithmetic_operand(expression.right, tightness + 1)
    return f"{left} {expression.operator} {right}"


def _arithmetic_operand(operand: ast.Expression, at_least: int) -> str:
    text = print_expression(operand)
    loose = isinstance(operand, ast.Arithmetic) and _TIGHTNESS[operand.operator] < at_least
    return f"({text})" if loose else text


def _conditional(conditional: ast.Conditional) -> str:
    cases = [(print_condition(c), print_expression(value)) for c, value in conditional.cases]
    otherwise = conditional.otherwise
    if len(cases) == 1:
        parts = [*cases[0], *([] if otherwise is None else [print_expression(otherwise)])]
        return f"if({', '.join(parts)})"
    lines = [f"{condition}: {value}" for condition, value in cases]
    if otherwise is not None:
        lines.append(f"else: {print_expression(otherwise)}")
    return f"case {{ {', '.join(lines)} }}"


def print_condition(condition: ast.Condition) -> str:
    """A filter, or several joined by a word, on one line."""
    match condition:
        case ast.BooleanCondition():
            return f" {condition.operator} ".join(
                f"({print_condition(each)})"
                if isinstance(each, ast.BooleanCondition)
                else print_condition(each)
                for each in condition.operands
            )
        case ast.NullTest():
            word = "is not null" if condition.negated else "is null"
            return f"{print_expression(condition.operand)} {word}"
        case ast.Filter():
            left, right = print_expression(condition.left), print_expression(condition.right)
            return f"{left} {condition.operator} {right}"
        case _:
            assert_never(condition)
