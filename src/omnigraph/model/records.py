"""Dataclasses that compile their methods when these are first used.

`dataclasses.dataclass` writes and compiles six methods for a frozen class, in a quarter of a
millisecond. A process that opens a graph and reads one row imports more than 400 such classes, and
needs methods of a few. The decorator here has the name, the parameters and the results of the
standard one, which collects the fields for it; `field`, `fields`, `replace` and `asdict` remain
those of the standard library.

It does not know `InitVar`. A class that is derived from another dataclass, or asks for an order,
is made by the standard library at once.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from functools import partial
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(cls=None, /, **options):
        """What `dataclasses.dataclass` makes, in a tenth of the time."""
        if cls is None:
            return partial(dataclass, **options)
        derived = any(hasattr(base, FIELDS) for base in cls.__bases__)
        if derived or not options.keys() <= OPTIONS:
            return dataclasses.dataclass(**options)(cls)
        return _made(cls, **options)


__all__ = ["dataclass"]

OPTIONS = frozenset(("eq", "frozen", "kw_only", "repr", "slots"))
FIELDS = "__dataclass_fields__"


class _Absent:
    """In a constructor, the value of a parameter that is left to its factory."""

    def __repr__(self) -> str:
        return "<factory>"


ABSENT = _Absent()


class _Later:
    """A method that is compiled when it is first looked up, and takes the place of this then."""

    __slots__ = ("_compiled", "_name", "_owner")

    def __init__(self, owner: type, name: str, compiled: Callable[[type], Any]) -> None:
        self._owner = owner
        self._name = name
        self._compiled = compiled

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        method = self._compiled(self._owner)
        setattr(self._owner, self._name, method)
        return method.__get__(instance, owner)


def _made(
    cls: type[Any], *, eq: bool = True, frozen: bool = False, repr: bool = True, **options: bool
) -> type[Any]:
    own = dict(vars(cls))
    # The standard library would write the signature here, and compile the constructor for it.
    if cls.__doc__ is None:
        cls.__doc__ = cls.__name__
    collected: Callable[[type[Any]], Any] = dataclasses.dataclass(
        init=False, repr=False, eq=False, **options
    )
    made = collected(cls)
    parameters = made.__dataclass_params__
    parameters.init, parameters.eq, parameters.repr, parameters.frozen = True, eq, repr, frozen
    wanted: dict[str, Any] = {"__init__": _initializer}
    if repr:
        wanted["__repr__"] = _representation
    if eq:
        wanted["__eq__"] = _equality
    for name, compiled in wanted.items():
        if name not in own:
            setattr(made, name, _Later(made, name, compiled))
    # Python itself puts None there for a class that has `__eq__` alone.
    hashed = "__hash__" in own and not (own["__hash__"] is None and "__eq__" in own)
    if eq and not hashed:
        made.__hash__ = _Later(made, "__hash__", _hashing) if frozen else None
    if frozen:
        _freeze(made, own, bool(options.get("slots")))
    return cast(type[Any], made)


def _freeze(cls: type[Any], own: dict[str, Any], slots: bool) -> None:
    names = frozenset(field.name for field in dataclasses.fields(cls))

    def refuse_to_assign(self: Any, name: str, value: object) -> None:
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
        super(cls, self).__setattr__(name, value)

    def refuse_to_delete(self: Any, name: str) -> None:
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
        super(cls, self).__delattr__(name)

    methods: dict[str, Any] = {"__setattr__": refuse_to_assign, "__delattr__": refuse_to_delete}
    if taken := methods.keys() & own:
        raise TypeError(f"Cannot overwrite attribute {min(taken)} in class {cls.__name__}")
    if slots:
        methods |= {"__getstate__": _state, "__setstate__": _set_state}
    for name, method in methods.items():
        if name not in own:
            setattr(cls, name, method)


def _state(self: Any) -> list[Any]:
    return [getattr(self, field.name) for field in dataclasses.fields(self)]


def _set_state(self: Any, state: Iterable[Any]) -> None:
    for field, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, field.name, value)


# --- methods that are compiled --------------------------------------------------------------------


def _initializer(cls: Any) -> Any:
    frozen, has_slots = cls.__dataclass_params__.frozen, "__slots__" in vars(cls)
    free: dict[str, Any] = {"_absent_": ABSENT, "_assign_": object.__setattr__}
    words: list[str] = []
    named: list[str] = []
    body: list[str] = []
    annotations: dict[str, Any] = {}
    for field in dataclasses.fields(cls):
        name = value = field.name
        default, factory = f"_default_{name}", f"_factory_{name}"
        word = name
        if field.default_factory is not dataclasses.MISSING:
            free[factory] = field.default_factory
            word += "=_absent_"
            made = f"{factory}()"
            value = f"{made} if {name} is _absent_ else {name}" if field.init else made
        elif field.default is not dataclasses.MISSING:
            free[default] = field.default
            word += f"={default}"
            if not field.init:
                if not has_slots:
                    continue  # the class has it
                value = default
        elif not field.init:
            continue
        if field.init:
            (named if field.kw_only else words).append(word)
            annotations[name] = field.type
        body.append(f"_assign_(self, {name!r}, {value})" if frozen else f"self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    if named:
        named.insert(0, "*")
    method = _compiled(cls, "__init__", ["self", *words, *named], body, free)
    method.__annotations__ = {**annotations, "return": None}
    return method


def _representation(cls: Any) -> Any:
    shown = (f"{f.name}={{self.{f.name}!r}}" for f in dataclasses.fields(cls) if f.repr)
    body = [f'return f"{{self.__class__.__qualname__}}({", ".join(shown)})"']
    return recursive_repr()(_compiled(cls, "__repr__", ["self"], body))


def _equality(cls: Any) -> Any:
    compared = [f.name for f in dataclasses.fields(cls) if f.compare]
    body = [
        "if other.__class__ is self.__class__:",
        f" return {_values('self', compared)} == {_values('other', compared)}",
        "return NotImplemented",
    ]
    return _compiled(cls, "__eq__", ["self", "other"], body)


def _hashing(cls: Any) -> Any:
    hashed = [f.name for f in dataclasses.fields(cls) if (f.compare if f.hash is None else f.hash)]
    return _compiled(cls, "__hash__", ["self"], [f"return hash({_values('self', hashed)})"])


def _values(of: str, names: list[str]) -> str:
    """The text of a tuple of attributes."""
    return f"({''.join(f'{of}.{name}, ' for name in names)})"


def _compiled(
    cls: Any, name: str, parameters: list[str], body: list[str], free: dict[str, Any] | None = None
) -> Any:
    """A function of this text; ``free`` are the values of its free variables."""
    free = free or {}
    lines = "".join(f"\n  {line}" for line in body or ["pass"])
    text = (
        f"def _make_({', '.join(free)}):\n"
        f" def {name}({', '.join(parameters)}):{lines}\n"
        f" return {name}"
    )
    made: dict[str, Any] = {}
    exec(text, {"__name__": cls.__module__}, made)  # noqa: S102
    method = made["_make_"](**free)
    method.__qualname__ = f"{cls.__qualname__}.{name}"
    return method
