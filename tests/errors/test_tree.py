"""The error tree as a whole: its drawing, its codes, its pickles."""

from __future__ import annotations

import inspect
import pickle
import re
from collections.abc import Iterator

import pytest

from omnigraph import errors
from omnigraph.errors import OmnigraphError, Position

CLASSES = [
    kind
    for kind in vars(errors).values()
    if getattr(kind, "__module__", "") == errors.__name__ and isinstance(kind, type)
]
ERRORS = [kind for kind in CLASSES if issubclass(kind, OmnigraphError)]

OWN_SIGNATURE: list[OmnigraphError] = [
    errors.ParameterError("name", "the parameter 'name' is missing", hint="give it"),
    errors.QueryTypeError(
        "no such type",
        diagnostic="T1",
        position=Position("q.gq", 1, 2, "query", 3, 0, 3),
        hint="spell it right",
    ),
    errors.KeyConflict("node", "Person", "ada"),
    errors.PolicyDenied("no", action="read", actor="ada", branch="main"),
    errors.AnswerLost("the line went dead"),
]


def drawn() -> Iterator[tuple[str, str]]:
    """Each class of the drawing with its parent, from top to bottom."""
    above: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
        found = re.match(r"    ((?:[│ ]   )*)[├└]── (\w+)", line)
        if not found:
            continue
        depth = len(found[1]) // 4
        above = [*above[:depth], found[2]]
        yield found[2], above[-2] if depth else OmnigraphError.__name__


def defined(kind: type[OmnigraphError] = OmnigraphError) -> Iterator[tuple[str, str]]:
    """Each class of the module with its parent, in the order of definition."""
    for child in kind.__subclasses__():
        if child.__module__ == errors.__name__:
            yield child.__name__, kind.__name__
            yield from defined(child)


def test_the_drawing_shows_the_tree_as_it_is() -> None:
    assert list(drawn()) == list(defined())
    assert len(ERRORS) == len(list(defined())) + 1


def test_every_code_is_of_one_class_alone() -> None:
    codes = [kind.code for kind in ERRORS if kind is not OmnigraphError]
    assert len(set(codes)) == len(codes)


def test_every_class_says_what_it_means() -> None:
    assert [kind for kind in CLASSES if not inspect.getdoc(kind)] == []


@pytest.mark.parametrize("error", OWN_SIGNATURE, ids=lambda error: type(error).__name__)
def test_an_error_arrives_whole_in_another_process(error: OmnigraphError) -> None:
    back = pickle.loads(pickle.dumps(error))
    assert type(back) is type(error)
    assert str(back) == str(error) and back.__dict__ == error.__dict__
    assert back.envelope() == error.envelope() and back.render() == error.render()
