"""Conditions of a match over the library, and how they read once they are typed."""

from __future__ import annotations

from omnigraph.model.types import Scalar, ValueType
from omnigraph.query import expressions as ex
from omnigraph.query import plan
from tests.query.library import matching

F32 = ValueType(Scalar.F32)


def book(name: str, type_: ValueType, variable: str = "b") -> ex.PropertyValue:
    return ex.PropertyValue(variable, "node", "Book", name, type_)


TITLE = book("title", ex.STRING)
PAGES = book("pages", ValueType(Scalar.I32, nullable=True))
WEIGHT = book("weight", ValueType(Scalar.F32, nullable=True))
PRICE = book("price", ValueType(Scalar.F64, nullable=True))
TAGS = book("tags", ValueType(Scalar.STRING, nullable=True, is_list=True))
GRADES = book("grades", ValueType(Scalar.F32, nullable=True, is_list=True))


def conditions(clauses: str, parameters: str = "") -> tuple[ex.Expression, ...]:
    """The predicates of a match that binds `$b: Book` and adds ``clauses``."""
    (scan,) = matching(f"$b: Book {clauses}", parameters=parameters).pattern.steps
    assert isinstance(scan, plan.Scan)
    return scan.predicates


def condition(clause: str, parameters: str = "") -> ex.Expression:
    (predicate,) = conditions(clause, parameters)
    return predicate


def integer(value: int) -> ex.Constant:
    return ex.Constant(value, ex.I64)
