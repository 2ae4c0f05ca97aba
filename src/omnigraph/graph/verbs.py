"""The verbs of a handle: imported when they are first looked up, and recorded as accesses.

Verbs are wrapped where their class is made, so a new one is recorded without being told so.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, TypeVar

from omnigraph.graph.opened import recorded_verb

NO_ACCESS: Mapping[str, str] = {
    "acting_as": "gives a handle",
    "auto_optimize": "says what this process did",
    "blocked_branches": "says what this process saw",
    "branch": "gives a handle, whose verbs are accesses",
    "check_head": "a server runs its own checks",
    "close": "ends what runs in the background",
    "compute": "gives verbs that are accesses",
    "follow": "a server looks after its own checks",
    "on_branch": "gives a handle",
    "reviews": "gives verbs that are accesses",
    "uri": "says what was opened",
}
"""Public names that touch no data of a graph, with the reason."""

Recorded = TypeVar("Recorded", bound=type)


class VerbModule:
    """A module of verbs that is imported when the first of them is looked up on a handle.

    A program that only reads does not wait for what merges, loads and upkeep import.
    """

    def __init__(self, name: str) -> None:
        """``name`` is that of the module below `omnigraph.graph`."""
        self._name = name

    def __getattr__(self, name: str) -> Verb:
        """A verb of the module, to be assigned in the body of a class."""
        if name.startswith("__"):
            raise AttributeError(name)
        return Verb(self._name, name)


class Verb:
    """A verb of a class whose module is not imported yet; a look-up puts the function in place."""

    def __init__(self, module: str, function: str) -> None:
        self._module, self._function = module, function
        self._is_recorded = False

    def __set_name__(self, owner: type, name: str) -> None:
        self._owner, self._name = owner, name

    def __get__(self, handle: object | None, owner: type) -> Any:
        """The function, or its method of a handle."""
        module = import_module(f"omnigraph.graph.{self._module}")
        found: Callable[..., Any] = getattr(module, self._function)
        setattr(
            self._owner,
            self._name,
            recorded_verb(found, self._name) if self._is_recorded else found,
        )
        return getattr(owner if handle is None else handle, self._name)

    def recorded(self) -> None:
        """Record every call, as `audited` does with functions that are there."""
        self._is_recorded = True


def audited(cls: Recorded) -> Recorded:
    """Record the verbs of a class: `Graph`, or what its properties give."""
    for name, found in list(vars(cls).items()):
        if name.startswith("_") or name in NO_ACCESS:
            continue
        if isinstance(found, Verb):
            found.recorded()
        elif isinstance(found, property) and found.fget is not None:
            setattr(cls, name, property(recorded_verb(found.fget), doc=found.__doc__))
        elif inspect.isfunction(found):
            setattr(cls, name, recorded_verb(found, name))
    return cls


def in_place(cls: Recorded) -> Recorded:
    """A class whose verbs are all imported, for what lists them."""
    for name in dir(cls):
        getattr(cls, name)
    return cls
