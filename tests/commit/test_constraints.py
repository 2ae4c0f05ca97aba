"""Every kind of constraint has one definition, which no other module repeats."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import get_args

import pyarrow as pa
import pytest

import omnigraph
from omnigraph.commit.validation import constraints
from omnigraph.commit.validation.constraints import (
    KINDS,
    ROLES,
    ConstraintKind,
    Degree,
    Endpoint,
    EntityIdentity,
    Holder,
    KeyConstraint,
    Report,
    Unique,
    ValueConstraint,
)
from omnigraph.commit.validation.evaluation import count_batch
from omnigraph.model.values import null_message
from omnigraph.schema.catalog import Cardinality

SOURCE = Path(omnigraph.__file__).parent
DEFINITIONS = Path(constraints.__file__)

MESSAGES = {
    "required": ("non-nullable property '{", Path(null_message.__code__.co_filename)),
    "enum": ("invalid enum value", DEFINITIONS),
    "finite": ("a non-finite float", Path(null_message.__code__.co_filename)),
    "range": ("@range violation", DEFINITIONS),
    "check": ("@check violation", DEFINITIONS),
    "identity": ("repeats id", DEFINITIONS),
    "unique": ("@{ violation on {", DEFINITIONS),
    "endpoint": ("not found in {", DEFINITIONS),
    "cardinality": ("@card violation", DEFINITIONS),
}
"""Words of each message, and the one file that has them: values that are null are also refused
where they are converted, by the same function."""


def subclasses(of: type) -> set[type]:
    direct: list[type] = of.__subclasses__()
    return {found for each in direct for found in (each, *subclasses(each))}


def test_every_kind_has_one_definition():
    assert tuple(KINDS) == get_args(ConstraintKind)
    defined = subclasses(ValueConstraint) | subclasses(KeyConstraint)
    # A dataclass with slots leaves the class it was made from among the subclasses.
    assert {each.__qualname__ for each in defined} == {each.__name__ for each in KINDS.values()}
    assert {each.__module__ for each in defined} == {constraints.__name__}
    assert len(set(KINDS.values())) == len(KINDS)


def test_the_message_of_every_kind_is_written_in_one_place():
    texts = {path: texts_of(path) for path in sorted(SOURCE.rglob("*.py"))}
    assert tuple(MESSAGES) == get_args(ConstraintKind)
    for kind, (words, where) in MESSAGES.items():
        found = [path for path, of_path in texts.items() if any(words in text for text in of_path)]
        assert found == [where], kind


def texts_of(path: Path) -> list[str]:
    """The texts of a module that are not docstrings; the fields of an f-string as `{`."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    texts = []
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts = [p.value if isinstance(p, ast.Constant) else "{" for p in node.values]
            texts.append("".join(map(str, parts)))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            texts.append(node.value if "\n" not in node.value else "")
    return texts


def counts(**of_roles: int) -> pa.RecordBatch:
    return count_batch(
        pa.array(["k"]), {role: pa.array([of_roles.get(role, 0)], pa.int64()) for role in ROLES}
    )


BROKEN = [
    (EntityIdentity("node:N"), {"written": 2}, True),
    (EntityIdentity("node:N"), {"written": 1, "record": 2}, True),
    (EntityIdentity("node:N"), {"written": 1, "committed": 1}, False),
    (EntityIdentity("node:N", refuses_existing=True), {"written": 1, "committed": 1}, True),
    (Unique("node:N", ("a",)), {"written": 1, "committed": 1}, True),
    (Unique("node:N", ("a",)), {"committed": 2}, False),
    (Unique("node:N", ("a",)), {"record": 2}, True),
    (Endpoint("node:N"), {"endpoint": 3}, True),
    (Endpoint("node:N"), {"endpoint": 3, "refused": 1}, False),
    (Endpoint("node:N"), {"endpoint": 3, "committed": 1}, False),
    (Degree("edge:E", Cardinality(1, 2)), {"written": 2, "committed": 1}, True),
    (Degree("edge:E", Cardinality(1, 2)), {"replaced": 1}, True),
    (Degree("edge:E", Cardinality(1, 2)), {"committed": 3}, False),
]


@pytest.mark.parametrize(("constraint", "of_roles", "is_broken"), BROKEN)
def test_counts_decide_whether_a_key_is_broken(
    constraint: KeyConstraint, of_roles: dict[str, int], is_broken: bool
):
    assert constraint.broken(counts(**of_roles)).to_pylist() == [is_broken]


def test_every_constraint_on_keys_reports_what_it_finds():
    written = Holder("written", "b", (0, 1), "E.src")
    reports = {
        violation.report
        for constraint, holders in (
            (EntityIdentity("node:N", ("k",)), [Holder("record", "a"), Holder("record", "a")]),
            (EntityIdentity("node:N"), [Holder("record", "a"), Holder("record", "a")]),
            (EntityIdentity("node:N", refuses_existing=True), [written, Holder("committed", "b")]),
            (Unique("node:N", ("a",)), [written, Holder("committed", "c")]),
            (Endpoint("node:N"), [Holder("endpoint", "b", member="E.src")]),
            (Degree("edge:E", Cardinality(2, None)), [written]),
        )
        for violation in constraint.explain([("key", holders)])
    }
    # The report `constraint` is that of single values.
    assert reports == set(get_args(Report)) - {"constraint"}
