"""`config.yaml`: what a person sets once for all invocations.

The file lies in `~/.omnigraph`, or where `OMNIGRAPH_HOME` says. No other file is ever read for
settings, least of all one that happens to lie in the working directory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from omnigraph.errors import InputError, NotFound
from omnigraph.model.ids import check_declared_actor
from omnigraph.syntax.suggest import did_you_mean

HOME_VARIABLE = "OMNIGRAPH_HOME"
SCOPES = ("server", "cluster", "store")
"""What a profile can bind; exactly one of them."""

OUTPUT_FORMATS = ("table", "kv", "csv", "jsonl", "json")
"""What results of queries can be printed as."""
CELL_LAYOUTS = ("truncate", "wrap")

_ANY_NAME = "*"
_FREE: dict[str, Any] = {}
"""Below such a key, the reader of the value checks everything."""
_KEYS: dict[str, Any] = {
    "operator": {"actor": _FREE},
    "servers": {_ANY_NAME: {"url": _FREE}},
    "clusters": {_ANY_NAME: {"root": _FREE}},
    "profiles": {_ANY_NAME: dict.fromkeys((*SCOPES, "default_graph", "output"), _FREE)},
    "defaults": dict.fromkeys(
        (
            *("server", "store", "default_graph"),
            *("output", "table_max_column_width", "table_cell_layout"),
        ),
        _FREE,
    ),
    "aliases": {
        _ANY_NAME: dict.fromkeys(("server", "graph", "query", "args", "params", "format"), _FREE)
    },
}


@dataclass(frozen=True, slots=True)
class Scope:
    """What a profile or the defaults bind: one kind of place, and which."""

    kind: str
    target: str
    origin: str
    """Where it was said, for messages."""
    graph: str | None = None
    """Which graph of a server, unless the command says."""


@dataclass(frozen=True, slots=True)
class OperatorConfig:
    """The settings of one file."""

    path: Path
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def actor(self) -> str | None:
        """The actor of writes that name none."""
        return self._text("operator", "actor")

    @property
    def output_format(self) -> str | None:
        """How results are printed when a command does not say."""
        return self._choice(("defaults", "output"), OUTPUT_FORMATS)

    @property
    def table_cell_layout(self) -> str | None:
        """What becomes of a long cell of a table."""
        return self._choice(("defaults", "table_cell_layout"), CELL_LAYOUTS)

    @property
    def table_max_column_width(self) -> int | None:
        """How wide a column of a table may be."""
        value = self._mapping("defaults").get("table_max_column_width")
        # In YAML, `yes` is a boolean, and in Python a boolean is a number.
        if value is None or (isinstance(value, int) and not isinstance(value, bool) and value > 0):
            return value
        raise InputError(
            f"`defaults.table_max_column_width` in {self.path} is not a positive number"
        )

    def default_scope(self) -> Scope | None:
        """What commands address when nothing else is said."""
        for kind in ("server", "store"):
            target = self._text("defaults", kind)
            if target is not None:
                graph = self._text("defaults", "default_graph")
                return Scope(kind, target, f"`defaults.{kind}` of {self.path}", graph)
        return None

    def servers(self) -> dict[str, str]:
        """The URLs of the servers by name."""
        return {name: self.server_url(name) for name in self._mapping("servers")}

    def server_url(self, name: str) -> str:
        """The URL of a server; raises `NotFound` with the nearest name."""
        self._require("server", name, f"add it to {self.path}, or give a URL")
        url = self._text("servers", name, "url")
        if url is None:
            raise InputError(f"server `{name}` has no `url`", hint=f"add it in {self.path}")
        return url

    def profile(self, name: str) -> Scope:
        """What a profile binds.

        Raises `NotFound` with the nearest name, and `InputError` for one that binds not exactly
        one scope.
        """
        self._require("profile", name, f"add it to {self.path}")
        bound = [kind for kind in SCOPES if self._text("profiles", name, kind) is not None]
        if len(bound) != 1:
            found = " and ".join(f"`{kind}`" for kind in bound) or "nothing"
            raise InputError(
                f"profile `{name}` binds {found}",
                hint=f"in {self.path} it must bind exactly one of {', '.join(SCOPES)}",
            )
        target = self._text("profiles", name, bound[0])
        assert target is not None
        graph = self._text("profiles", name, "default_graph")
        return Scope(bound[0], target, f"profile `{name}`", graph)

    def check(self) -> None:
        """Raise `InputError` for a reserved actor, and for defaults that contradict each other."""
        if self.actor is not None:
            check_declared_actor(self.actor, where=f"`operator.actor` in {self.path}")
        store = self._text("defaults", "store")
        for other in ("server", "default_graph"):
            if store is not None and self._text("defaults", other) is not None:
                raise InputError(
                    f"`defaults.store` and `defaults.{other}` in {self.path} contradict each other",
                    hint="a store is one graph already; keep one of the two",
                )

    def unknown_keys(self) -> Iterator[str]:
        """The paths of keys that mean nothing."""
        return _unknown(self.settings, _KEYS, "")

    def _require(self, noun: str, name: str, otherwise: str) -> None:
        """Raise `NotFound` with the nearest name, or all of them."""
        known = self._mapping(f"{noun}s")
        if name not in known:
            listed = f"the {noun}s are {', '.join(sorted(known))}" if known else otherwise
            hint = did_you_mean(name, known) or listed
            raise NotFound(f"there is no {noun} `{name}`", hint=hint)

    def _mapping(self, *path: str) -> Mapping[str, Any]:
        value: Any = self.settings
        for at, key in enumerate(path):
            value = value.get(key) or {}
            if not isinstance(value, Mapping):
                raise InputError(f"`{'.'.join(path[: at + 1])}` in {self.path} is not a mapping")
        found: Mapping[str, Any] = value
        return found

    def _choice(self, path: tuple[str, ...], choices: tuple[str, ...]) -> str | None:
        value = self._text(*path)
        if value is None or value in choices:
            return value
        raise InputError(
            f"`{'.'.join(path)}` in {self.path} is `{value}`",
            hint=did_you_mean(value, choices) or f"it can be {', '.join(choices)}",
        )

    def _text(self, *path: str) -> str | None:
        value = self._mapping(*path[:-1]).get(path[-1])
        if value is None or (isinstance(value, str) and value):
            return value
        raise InputError(f"`{'.'.join(path)}` in {self.path} is not a text")


def read_config(environment: Mapping[str, str], warn: Callable[[str], None]) -> OperatorConfig:
    """The settings of this user; none if there is no file.

    Raises `InputError` for a file that cannot be read or understood. Keys that mean nothing are
    ignored with a warning, so that a newer file does not break an older program.
    """
    home = Path(environment.get(HOME_VARIABLE) or "~/.omnigraph").expanduser()
    path = home / "config.yaml"
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return OperatorConfig(path)
    except (OSError, UnicodeDecodeError) as problem:
        reason = getattr(problem, "strerror", None) or str(problem)
        raise InputError(f"cannot read `{path}`: {reason.lower()}") from problem
    config = OperatorConfig(path, _parsed(text, path))
    for key in config.unknown_keys():
        warn(f"unknown key `{key}` in {path}")
    config.check()
    return config


def _parsed(text: str, path: Path) -> Mapping[str, Any]:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    try:
        document = YAML(typ="safe", pure=True).load(text)
    except MarkedYAMLError as problem:
        mark = problem.problem_mark
        place = f":{mark.line + 1}:{mark.column + 1}" if mark is not None else ""
        raise InputError(f"{path}{place}: {problem.problem}") from problem
    except YAMLError as problem:
        raise InputError(f"`{path}` is not valid YAML: {problem}") from problem
    if document is None:
        return {}
    if not isinstance(document, Mapping):
        raise InputError(f"`{path}` is not a mapping of settings")
    return document


def _unknown(settings: Any, known: Mapping[str, Any], prefix: str) -> Iterator[str]:
    if not isinstance(settings, Mapping) or known is _FREE:
        return
    for key, value in settings.items():
        below = known.get(key, known.get(_ANY_NAME))
        if below is None:
            yield f"{prefix}{key}"
        else:
            yield from _unknown(value, below, f"{prefix}{key}.")
