"""The reference of the Python interface, from signatures and docstrings.

The first page has the functions of the package and the verbs of its graphs, the second every value
that such a verb returns. Which classes these are follows from the annotations, so a new verb with a
new receipt needs nothing here.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from importlib import import_module
from itertools import pairwise
from typing import Any

import omnigraph as og
from docs.generators.text import cell
from omnigraph.graph.computing import Algorithms
from omnigraph.graph.facade import in_place
from omnigraph.model.computations import ComputeOptions

PYTHON_INTRODUCTION = """\
# Python

<!-- Written by `make docs` from docstrings in omnigraph: edit there. -->

```text
import omnigraph as og
```

`og.init` creates a graph, `og.open` opens one, `og.connect` finds one behind a server. All give an
object with the same verbs. What the verbs return is on [a page of its own](values.md), what they
raise among the [errors](errors.md). A query or a schema is a text, or the `Path` of a file.
"""

VALUES_INTRODUCTION = """\
# Results and receipts

<!-- Written by `make docs` from docstrings in omnigraph: edit there. -->

What the verbs of [a graph](python.md) return. Receipts and plans are frozen values, and most have
`to_dict`, which is what the command line prints with `--json`.
"""

GROUPS = {
    "Reading": (
        *("query", "explain", "describe_queries", "describe_schema", "snapshot", "export"),
        *("entity_at", "blob"),
        *("export_to", "table", "frame", "compute", "schema_source", "accepted_ir", "uri"),
    ),
    "Stored queries": ("list_queries", "invoke"),
    "Writing": ("mutate", "load", "embed", "plan_schema", "apply_schema", "rebase_schema"),
    "Branches and review": (
        *("branch", "on_branch", "create_branch", "list_branches", "delete_branch"),
        *("diff", "diff_page", "plan_merge", "merge_branch"),
        *("plan_revert", "revert", "plan_cherry_pick", "cherry_pick"),
    ),
    "History and changes": (
        *("list_commits", "show_commit", "entity_history", "commit_changes"),
        *("commit_changes_page", "change_baseline", "poll_changes"),
    ),
    "Upkeep": (
        *("ensure_indices", "optimize", "auto_optimize", "stats", "examine", "cleanup", "repair"),
        *("recover", "list_recoveries"),
    ),
}
BESIDE = {
    "omnigraph.graph": ("doctor",),
    "omnigraph.inference": ("InferredType", "InferredProperty", "InferredEnd"),
    "omnigraph.schema.compile": ("lint_schema",),
    "omnigraph.policy": ("load_policy", "Policy"),
    "omnigraph.embedding.config": ("EmbeddingConfig",),
    "omnigraph.client": ("Patience",),
}
"""What the guides import from elsewhere than the package itself."""

REST = "More"
"""The group of verbs that have no group."""

NOT_SHOWN = ("omnigraph.schema", "omnigraph.query")
"""Syntax trees of the languages, which are documented in the code only."""
NOT_FOLLOWED = (*NOT_SHOWN, "omnigraph.storage", "omnigraph.branching.table_rows")
"""Parts of values that are the business of the value itself."""


def python_page() -> str:
    """The functions of the package and the verbs of its graphs."""
    parts = [PYTHON_INTRODUCTION, "\n## Functions\n"]
    for name in ("init", "open", "connect", "connect_async", "infer_schema", "read_pipeline"):
        parts += _callable(f"og.{name}", getattr(og, name), 3)
    for name in ("Graph", "RemoteGraph"):
        graph = in_place(getattr(og, name))
        parts.append(f"\n## {name}\n\n{docstring(graph)}\n")
        for group, members in _grouped(graph).items():
            parts.append(f"\n### {name}: {group[0].lower()}{group[1:]}\n")
            for member in members:
                parts += _callable(f"{name}.{member}", inspect.getattr_static(graph, member), 4)
    parts.append(f"\n## AsyncRemoteGraph\n\n{docstring(og.AsyncRemoteGraph)}\n\n")
    verbs = ", ".join(f"`{name}`" for name in public_names(og.AsyncRemoteGraph))
    parts.append(f"The verbs are those of `RemoteGraph`, to be awaited: {verbs}.\n")
    parts.append(f"\n## Graph.compute\n\n{docstring(Algorithms)}\n")
    for name in public_names(Algorithms):
        parts += _callable(f"Graph.compute.{name}", inspect.getattr_static(Algorithms, name), 3)
    parts += _beside("omnigraph.model.computations.ComputeOptions", ComputeOptions)
    parts.append("\n## Limits of a query\n")
    parts += _beside("og.Governor", og.Governor)
    parts.append("\n## Options of a load\n")
    for name in ("CsvOptions", "ErrorOptions", "SparkOptions", "LoadObserver", "LoadOrigin"):
        parts += _beside(f"og.{name}", getattr(og, name))
    parts.append("\n## Inferred schemas\n")
    parts += _beside("og.InferredSchema", og.InferredSchema)
    parts.append("\n## Pipelines\n")
    parts += _beside("og.Pipeline", og.Pipeline)
    parts.append("\n## Beside it\n\nWhat the guides import by a longer name.\n")
    for module, names in BESIDE.items():
        for name in names:
            parts += _beside(f"{module}.{name}", getattr(import_module(module), name))
    return "".join(parts)


def values_page() -> str:
    """Every class of a value that a verb returns, with its fields and methods."""
    parts = [VALUES_INTRODUCTION]
    for value in returned_values():
        parts.append(f"\n## {value.__name__}\n\n{docstring(value)}\n")
        parts += _attributes(value)
        methods = [name for name in public_names(value) if _is_method(value, name)]
        if methods:
            parts.append("\n| Method | Returns |\n| --- | --- |\n")
            parts += [_method_row(value, name) for name in methods]
    return "".join(parts)


def public_names(kind: type) -> list[str]:
    """What a class offers, in the order of definition, inherited names included."""
    found: dict[str, None] = {}
    for each in reversed(kind.__mro__):
        if each.__module__.startswith("omnigraph"):
            found |= {name: None for name in vars(each) if not name.startswith("_")}
    return list(found)


def returned_values() -> list[type]:
    """The classes in the annotations of verbs, and in the fields of those, by name."""
    found: dict[str, type] = {}
    waiting = [
        kind
        for graph in (og.Graph, og.RemoteGraph, Algorithms)
        for name in public_names(graph)
        for kind in classes_in(function_of(graph, name))
    ]
    while waiting:
        kind = waiting.pop()
        if kind.__name__ not in found and not kind.__module__.startswith(NOT_SHOWN):
            found[kind.__name__] = kind
            waiting += [
                inner
                for each in _fields(kind)
                for inner in _named(each.type, kind.__module__)
                if not inner.__module__.startswith(NOT_FOLLOWED)
            ]
    return [found[name] for name in sorted(found)]


def function_of(kind: type, name: str) -> Callable[..., Any]:
    """The function behind a method or a property."""
    return _function(inspect.getattr_static(in_place(kind), name))


def classes_in(function: Callable[..., Any]) -> list[type]:
    """The classes of ours that a function is annotated to return."""
    returned = str(inspect.signature(function).return_annotation)
    return _named(returned, function.__module__)


def docstring(subject: object) -> str:
    """A docstring as Markdown: names of arguments stand between single ticks, code in a block."""
    text = inspect.getdoc(subject) or ""
    paragraphs = []
    for paragraph in text.replace("``", "`").split("\n\n"):
        if paragraph.startswith((">>> ", "    ")):
            paragraphs.append(f"```pycon\n{inspect.cleandoc(paragraph)}\n```")
        else:
            paragraphs.append(re.sub(r"::$", ":", " ".join(paragraph.split())))
    return "\n\n".join(paragraphs)


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    type: str
    about: str


def _grouped(graph: type) -> dict[str, list[str]]:
    offered = public_names(graph)
    groups = {group: [name for name in names if name in offered] for group, names in GROUPS.items()}
    known = {name for names in groups.values() for name in names}
    groups[REST] = [name for name in offered if name not in known]
    return {group: names for group, names in groups.items() if names}


def _callable(name: str, subject: Any, level: int) -> Iterator[str]:
    function = _function(subject)
    yield f"\n{'#' * level} {name}\n\n"
    yield f"```text\n{_signature(name, subject)}\n```\n\n{docstring(function)}\n"


def _beside(name: str, subject: Any) -> Iterator[str]:
    """A function, or a class with what it holds and the methods it is made or used by."""
    if not isinstance(subject, type):
        yield from _callable(name, subject, 3)
        return
    yield f"\n### {name}\n\n{docstring(subject)}\n"
    yield from _attributes(subject)
    for member in public_names(subject):
        found = inspect.getattr_static(subject, member)
        if isinstance(found, classmethod) or inspect.isfunction(found):
            yield from _callable(f"{subject.__name__}.{member}", found, 4)


def _attributes(value: type) -> Iterator[str]:
    described = list(_fields(value))
    if any(each.about for each in described):
        yield "\n| Attribute | Type | Meaning |\n| --- | --- | --- |\n"
        for each in described:
            yield f"| `{each.name}` | `{cell(each.type)}` | {each.about} |\n"
    elif described:
        yield "\n| Attribute | Type |\n| --- | --- |\n"
        for each in described:
            yield f"| `{each.name}` | `{cell(each.type)}` |\n"


def _function(subject: Any) -> Callable[..., Any]:
    if isinstance(subject, property):
        assert subject.fget is not None
        return subject.fget
    function: Callable[..., Any] = getattr(subject, "__func__", subject)
    return function


def _signature(name: str, subject: Any) -> str:
    """A call with one argument a line where it would not fit on one."""
    signature = inspect.signature(_function(subject))
    returned = _unquoted(signature.return_annotation)
    if isinstance(subject, property):
        return f"{name}: {returned}"
    shown = [
        _unquoted(str(parameter))
        for parameter in signature.parameters.values()
        if parameter.name not in ("self", "cls")
    ]
    kinds = [
        parameter.kind
        for parameter in signature.parameters.values()
        if parameter.name not in ("self", "cls")
    ]
    if inspect.Parameter.KEYWORD_ONLY in kinds and inspect.Parameter.VAR_POSITIONAL not in kinds:
        shown.insert(kinds.index(inspect.Parameter.KEYWORD_ONLY), "*")
    line = f"{name}({', '.join(shown)}) -> {returned}"
    if len(line) <= 88:
        return line
    arguments = "".join(f"    {argument},\n" for argument in shown)
    return f"{name}(\n{arguments}) -> {returned}"


def _unquoted(annotation: object) -> str:
    """An annotation as it was written: `from __future__` keeps them as texts."""
    text = annotation.__name__ if isinstance(annotation, type) else str(annotation)
    return re.sub(r"(: |^)'([^']*)'", r"\1\2", text)


def _is_method(value: type, name: str) -> bool:
    return callable(_function_or_none(inspect.getattr_static(value, name)))


def _function_or_none(subject: object) -> Callable[..., Any] | None:
    if isinstance(subject, (classmethod, staticmethod)):
        return None  # ways to make a value, not to use one
    return subject if inspect.isfunction(subject) else None


def _method_row(value: type, name: str) -> str:
    method = inspect.getattr_static(value, name)
    opening = docstring(method).partition("\n\n")[0]
    signature = _signature(name, method).replace("\n", " ").replace("(     ", "(")
    signature = re.sub(r"\s+", " ", signature).replace("( ", "(").replace(", )", ")")
    return f"| `{cell(signature)}` | {cell(opening)} |\n"


def _fields(value: type) -> Iterator[_Field]:
    """The fields of a dataclass and the properties of any class, each with its docstring."""
    if is_dataclass(value):
        about = _attribute_docstrings(value)
        for field in fields(value):
            if not field.name.startswith("_"):
                yield _Field(field.name, _unquoted(field.type), cell(about.get(field.name, "")))
    for name in public_names(value):
        subject = inspect.getattr_static(value, name)
        if isinstance(subject, property):
            returned = inspect.signature(_function(subject)).return_annotation
            opening = docstring(_function(subject)).partition("\n\n")[0]
            yield _Field(name, _unquoted(returned), cell(opening))


def _attribute_docstrings(value: type) -> dict[str, str]:
    """The texts below the fields of a class and of those it inherits from."""
    found: dict[str, str] = {}
    for kind in reversed(value.__mro__):
        if not kind.__module__.startswith("omnigraph"):
            continue
        body = _class_of(kind).body
        for statement, below in pairwise(body):
            if (
                isinstance(statement, ast.AnnAssign)
                and isinstance(statement.target, ast.Name)
                and isinstance(below, ast.Expr)
                and isinstance(below.value, ast.Constant)
            ):
                text = " ".join(str(below.value.value).split())
                found[statement.target.id] = text.replace("``", "`")
    return found


def _class_of(kind: type) -> ast.ClassDef:
    for node in ast.walk(_tree(kind.__module__)):
        if isinstance(node, ast.ClassDef) and node.name == kind.__name__:
            return node
    raise LookupError(kind)


def _named(annotation: str, module: str) -> list[type]:
    """The classes of ours that an annotation names, wherever its module has them from."""
    found = []
    for name in re.findall(r"[A-Z]\w+", annotation):
        kind = getattr(sys.modules[module], name, None)
        if kind is None and (origin := _imported(module).get(name)):
            kind = getattr(import_module(origin), name)
        if isinstance(kind, type) and kind.__module__.startswith("omnigraph."):
            found.append(kind)
    return found


@cache
def _imported(module: str) -> dict[str, str]:
    """Where the names of a module come from, those imported for type checking included."""
    return {
        alias.asname or alias.name: node.module
        for node in ast.walk(_tree(module))
        if isinstance(node, ast.ImportFrom) and node.module is not None
        for alias in node.names
    }


@cache
def _tree(module: str) -> ast.Module:
    return ast.parse(inspect.getsource(sys.modules[module]))
