"""The error tree as a whole: its drawing, its codes, its pickles."""

from __future__ import annotations

import ast
import inspect
import io
import pickle
import re
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path

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


# --- hints for every place ------------------------------------------------------------------------

PACKAGE = Path(omnigraph.__file__).parent
ON_THE_COMMAND_LINE = ("access", "cli", "cluster", "lsp.py", "server")
"""What is started from the command line, where a flag is all there is to change."""
COMMAND = re.compile(r"`(omnigraph|serve) [^`]*`")
VERB = re.compile(r"(// )?(omnigraph )?[a-z]+( [a-z-]+)? --[a-z-]+( \S+)*")
"""What the gate decides about, and lines to be typed as they are."""
FLAG = re.compile(r"(?<![\w-])--([a-z][a-z-]+)")
ARGUMENTS = {
    "edge": "edges=",
    "from": "from_=",
    "graph": "`graph`",
    "node": "nodes=",
    "replace": "absent=",
    "server": "omnigraph.connect(",
    "spark-conf": "SparkOptions(",
    "store": "=…)",
    "type": "types=",
}
"""Flags that are called otherwise in Python."""


def sentences(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Every text on one line that is no docstring, with its line; what it inserts is `{}`."""
    inside = {id(part) for each in ast.walk(tree) if isinstance(each, ast.JoinedStr)
              for part in ast.walk(each) if part is not each}  # fmt: skip
    alone = {id(each.value) for each in ast.walk(tree) if isinstance(each, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts = (part.value if isinstance(part, ast.Constant) else "{}" for part in node.values)
            text = "".join(map(str, parts))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value
        else:
            continue
        if id(node) not in inside | alone and " " in text and "\n" not in text:
            yield node.lineno, text


def only_flags(text: str) -> list[str]:
    """The flags of a text that does not say what they are called in Python."""
    flags = () if VERB.fullmatch(text) else FLAG.findall(COMMAND.sub("", text))
    return [flag for flag in flags if ARGUMENTS.get(flag, f"{flag.replace('-', '_')}=") not in text]


def test_a_hint_that_names_a_flag_names_the_argument_of_python_as_well() -> None:
    found = [
        f"{path.relative_to(PACKAGE)}:{line}: --{flag}"
        for path in sorted(PACKAGE.rglob("*.py"))
        if path.relative_to(PACKAGE).parts[0] not in ON_THE_COMMAND_LINE
        for line, text in sentences(ast.parse(path.read_text(encoding="utf-8")))
        for flag in only_flags(text)
    ]
    assert found == []
    assert only_flags("pass `--force`, or `omnigraph repair --confirm`") == ["force"]
    assert only_flags("pass `--allow-data-loss` (allow_data_loss=True)") == []
