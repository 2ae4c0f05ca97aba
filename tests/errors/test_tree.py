"""The error tree as a whole: its drawing, its codes, its pickles."""

from __future__ import annotations

import inspect
import io
import pickle
import re
from collections.abc import Iterator
from contextlib import redirect_stdout

import pytest

import omnigraph
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


def test_str_of_a_compile_error_points_into_the_text_and_render_adds_the_hint() -> None:
    graph_query = "query q {\n\tmatch { $p: Persn }\n}"
    position = Position(None, 2, 14, "\tmatch { $p: Persn }", 5, 23, 28)
    error = errors.QueryTypeError(
        "unknown node type `Persn`", diagnostic="T1", position=position, hint="did you mean that?"
    )
    assert str(error).splitlines() == [
        "<input>:2:14: type error: T1: unknown node type `Persn`",
        "  |",
        "2 | " + graph_query.splitlines()[1],
        "  | \t            ^^^^^",
    ]
    assert error.render() == f"{error}\nhint: did you mean that?"
    assert error.message == "type error: T1: unknown node type `Persn`"


def shown_in_a_notebook(cell: str) -> str:
    """What IPython prints for a cell that fails."""
    from IPython.core.interactiveshell import InteractiveShell

    shell = InteractiveShell()
    with redirect_stdout(io.StringIO()) as shown:
        shell.run_cell(cell)
    return shown.getvalue()


CELL = """
from omnigraph.schema.compile import compile_schema
def mine():
    compile_schema("node Person { name: Strin }", domain="d")
mine()
"""


def test_a_notebook_shows_the_frames_of_the_caller_only(monkeypatch: pytest.MonkeyPatch) -> None:
    short = shown_in_a_notebook(CELL)
    assert "in mine" in short and "compile_schema(" in short
    assert "compile.py" not in short and "interactiveshell" not in short
    assert "node Person { name: Strin }\n" in short and "^^^^^" in short and "hint: " in short
    monkeypatch.setenv(errors.FULL_TRACEBACK, "1")
    full = shown_in_a_notebook(CELL)
    assert errors.FULL_TRACEBACK in short and errors.FULL_TRACEBACK not in full
    assert "compile.py" in full and "in mine" in full


def test_a_notebook_names_what_caused_an_error() -> None:
    cell = """
import omnigraph as og
try:
    raise OSError("the disk is gone")
except OSError as problem:
    raise og.errors.StorageError("not read") from problem
"""
    assert shown_in_a_notebook(cell).splitlines()[-2:] == [
        "StorageError: not read",
        "caused by OSError: the disk is gone",
    ]


def test_completion_of_the_package_lists_its_public_names() -> None:
    assert dir(omnigraph) == sorted(omnigraph.__all__)
