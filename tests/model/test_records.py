"""Classes of `omnigraph.model.records` beside those of the standard library."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import subprocess
import sys
from collections.abc import Callable, Hashable
from dataclasses import FrozenInstanceError, asdict, field, fields, replace
from typing import Any, ClassVar, Generic, TypeVar

import pytest

from omnigraph.model.records import dataclass
from tests.support.tables import check_all

OPTIONS: dict[str, dict[str, bool]] = {
    "plain": {},
    "slots": {"slots": True},
    "frozen": {"frozen": True},
    "frozen slots": {"frozen": True, "slots": True},
    "frozen slots, by name": {"frozen": True, "slots": True, "kw_only": True},
    "no equality": {"frozen": True, "slots": True, "eq": False},
    "no representation": {"frozen": True, "repr": False},
    "ordered": {"frozen": True, "order": True},
}
T = TypeVar("T")
Decorator = Callable[[type[Any]], type[Any]]


def _plain(made: Decorator) -> type[Any]:
    class Point:
        """A point."""

        x: int
        y: int = 2

    return made(Point)


def _undocumented(made: Decorator) -> type[Any]:
    class Point:
        x: int

    return made(Point)


def _with_every_kind_of_field(made: Decorator) -> type[Any]:
    class Point:
        """A point."""

        kind: ClassVar[str] = "point"
        x: int = field(hash=False)
        y: list[int] = field(default_factory=list, compare=False)
        z: int = field(default=3, repr=False)
        w: int = field(default=4, init=False)
        v: tuple[int, ...] = field(default_factory=tuple, init=False)
        u: int = field(default=5, kw_only=True)

    return made(Point)


def _with_a_computed_field(made: Decorator) -> type[Any]:
    class Point:
        """A point."""

        x: int
        double: int = field(init=False)

        def __post_init__(self) -> None:
            object.__setattr__(self, "double", self.x * 2)

    return made(Point)


def _with_methods_of_its_own(made: Decorator) -> type[Any]:
    class Point:  # noqa: PLW1641
        """A point."""

        x: int
        y: int = 0

        def __eq__(self, other: object) -> bool:
            return type(other) is type(self) and self.x == other.x

        def __repr__(self) -> str:
            return f"<{self.x}>"

    return made(Point)


def _with_a_hash_of_its_own(made: Decorator) -> type[Any]:
    class Point:
        """A point."""

        x: int

        def __hash__(self) -> int:
            return 7

    return made(Point)


def _generic(made: Decorator) -> type[Any]:
    class Point(Generic[T]):
        """A point."""

        x: T

    return made(Point)


def _derived(made: Decorator) -> type[Any]:
    class Named:
        """A name."""

        x: int
        name: str = "a"

    base = made(Named)

    class Point(base):  # type: ignore[misc,valid-type]
        """A point."""

        y: int = 1

    return made(Point)


BODIES = [
    _plain,
    _undocumented,
    _with_every_kind_of_field,
    _with_a_computed_field,
    _with_methods_of_its_own,
    _with_a_hash_of_its_own,
    _generic,
    _derived,
]


def told(cls: type[Any]) -> dict[str, object]:
    """What can be seen of a class and of values of it, with failures as their types and texts."""
    given = {"x": 1}

    def answer(of: Callable[[], object]) -> object:
        try:
            return of()
        except Exception as failure:
            return type(failure), str(failure)

    one, two = cls(**given), cls(**given)
    return {
        "signature": str(inspect.signature(cls)),
        "fields": [(f.name, f.type, f.kw_only, f.init) for f in fields(cls)],
        "match": cls.__match_args__,
        "slots": getattr(cls, "__slots__", None),
        "frozen": cls.__dataclass_params__.frozen,
        "repr": answer(lambda: repr(one).partition(" object at ")[0]),
        "equal": (one == two, one != two, one == object(), one.__eq__(object())),
        "hash": answer(lambda: (hash(one) == hash(two), isinstance(one, Hashable))),
        "order": answer(lambda: one < two),
        "set": answer(lambda: setattr(two, "x", 9)),
        # With slots, the standard library looks for the class that it has replaced by another.
        "set another": hasattr(cls, "__slots__") or answer(lambda: setattr(two, "other", 9)),
        "delete": answer(lambda: delattr(one, "x")),
        "dict": answer(lambda: asdict(two)),
        "changed": answer(lambda: repr(replace(cls(**given), **given)).partition(" object")[0]),
        "copied": answer(lambda: asdict(copy.copy(two)) == asdict(copy.deepcopy(two))),
        "too many": answer(lambda: cls(1, 2, 3, 4, 5, 6, 7)),
        "too few": answer(cls),
        "names": (cls.__init__.__qualname__, cls.__init__.__name__, cls.__init__.__module__),
        "annotations": cls.__init__.__annotations__,
        "state": [hasattr(cls, name) for name in ("__getstate__", "__setstate__")],
    }


def test_a_class_is_what_the_standard_library_makes_of_it() -> None:
    def check(case: tuple[Callable[[Decorator], type[Any]], dict[str, bool]]) -> None:
        body, options = case
        try:
            expected = told(body(dataclasses.dataclass(**options)))
        except TypeError as refused:
            with pytest.raises(TypeError, match=str(refused).partition("(")[0]):
                told(body(dataclass(**options)))
            return
        assert told(body(dataclass(**options))) == expected

    check_all(
        {f"{body.__name__}, {name}": (body, OPTIONS[name]) for body in BODIES for name in OPTIONS},
        check,
    )


@dataclass(frozen=True, slots=True)
class Kept:
    """A value with a place that pickle finds."""

    x: int
    y: tuple[int, ...] = ()


@dataclass
class Tree:
    """A value that may hold itself."""

    children: list[Tree] = field(default_factory=list)


def test_values_survive_pickling_and_remain_frozen() -> None:
    back = pickle.loads(pickle.dumps(Kept(1, (2, 3))))
    assert back == Kept(1, (2, 3))
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'x'"):
        back.x = 2


def test_a_value_that_holds_itself_is_shown() -> None:
    tree = Tree()
    tree.children.append(tree)
    assert repr(tree) == "Tree(children=[...])"


def test_derived_classes_keep_the_methods_of_their_base() -> None:
    class More(Kept):
        """Not a dataclass of its own."""

    more = More(1)
    assert (more.x, repr(more), more == More(1), more == Kept(1)) == (
        1,
        "test_derived_classes_keep_the_methods_of_their_base.<locals>.More(x=1, y=())",
        True,
        False,
    )


def test_methods_are_compiled_when_they_are_first_used() -> None:
    """Or a start would compile those of all classes that it imports."""
    code = (
        "import builtins, dataclasses\n"
        "compiled = []\n"
        "run = builtins.exec\n"
        "builtins.exec = lambda text, *rest: (compiled.append(text), run(text, *rest))[1]\n"
        "import omnigraph.syntax.query_ast as ast, omnigraph.model.types\n"
        "before = len([text for text in compiled if isinstance(text, str)])\n"
        "ast.Variable('a', None)\n"
        "print(before, len([text for text in compiled if isinstance(text, str)]) - before)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    before, after = done.stdout.split()
    assert (int(before) < 40, int(after)) == (True, 1), done.stdout
