"""`config.yaml`: settings of a user for all invocations.

The file lies in `~/.omnigraph`, or where `OMNIGRAPH_HOME` says. No other file is read for settings,
in particular none in the working directory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

from omnigraph.errors import InputError, NotFound
from omnigraph.model.ids import check_declared_actor
from omnigraph.model.records import dataclass
from omnigraph.syntax.suggest import did_you_mean

HOME_VARIABLE = "OMNIGRAPH_HOME"
SCOPES = ("server", "cluster", "store")
"""The kinds of targets of a profile; each has exactly one."""

OUTPUT_FORMATS = ("table", "kv", "csv", "jsonl", "json")
"""Output formats of query results."""
CELL_LAYOUTS = ("truncate", "wrap")

_PLACE_KEYS = ("profile", "store", "server", "default_graph")
"""The keys of `defaults` that select the graph."""
_ANY_NAME = "*"
_FREE: dict[str, Any] = {}
"""Values below such a key are checked where they are read."""
_KEYS: dict[str, Any] = {
    "operator": {"actor": _FREE},
    "servers": {_ANY_NAME: {"url": _FREE}},
    "clusters": {_ANY_NAME: {"root": _FREE}},
    "profiles": {_ANY_NAME: dict.fromkeys((*SCOPES, "default_graph", "output"), _FREE)},
    "defaults": dict.fromkeys(
        (
            *("profile", "server", "store", "default_graph"),
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
    """The target of a profile or of the defaults: its kind and its name or URI."""

    kind: str
    target: str
    origin: str
    """Where it was set, for messages."""
    graph: str | None = None
    """The graph of a server, unless the command names one."""


@dataclass(frozen=True, slots=True)
class Alias:
    """A stored query of a server under a short name; running it never writes."""

    name: str
    server: str
    query: str
    graph: str | None
    args: tuple[str, ...]
    """The parameters that positional arguments set, in order."""
    params: Mapping[str, Any]
    """Fixed parameters, which the command line may override."""
    format: str | None


@dataclass(frozen=True, slots=True)
class OperatorConfig:
    """The settings of one file."""

    path: Path
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def actor(self) -> str | None:
        """The actor of writes without `--as`."""
        return self._text("operator", "actor")

    @property
    def default_profile(self) -> str | None:
        """The profile of commands that address no graph."""
        return self._text("defaults", "profile")

    def output_format(self, profile: str | None = None) -> str | None:
        """The default output format: that of the profile, else the general one."""
        of_profile = None
        if profile is not None:
            of_profile = self._choice(("profiles", profile, "output"), OUTPUT_FORMATS)
        return of_profile or self._choice(("defaults", "output"), OUTPUT_FORMATS)

    @property
    def table_cell_layout(self) -> str | None:
        """How long cells of a table are shown."""
        return self._choice(("defaults", "table_cell_layout"), CELL_LAYOUTS)

    @property
    def table_max_column_width(self) -> int | None:
        """The maximum width of a table column."""
        value = self._mapping("defaults").get("table_max_column_width")
        # `yes` in YAML is a boolean, which is an `int` in Python.
        if value is None or (isinstance(value, int) and not isinstance(value, bool) and value > 0):
            return value
        raise InputError(
            f"`defaults.table_max_column_width` in {self.path} is not a positive number"
        )

    def default_scope(self) -> Scope | None:
        """The target of commands that address no graph."""
        if self.default_profile is not None:
            return self.profile(self.default_profile)
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

    def cluster_root(self, name: str) -> str:
        """The storage root, or the directory, of a cluster; raises `NotFound`."""
        self._require("cluster", name, f"add it to {self.path}, or give a directory or a URI")
        root = self._text("clusters", name, "root")
        if root is None:
            raise InputError(f"cluster `{name}` has no `root`", hint=f"add it in {self.path}")
        return root

    def profiles(self) -> list[str]:
        """The names of the profiles."""
        return list(self._mapping("profiles"))

    def bindings(self, name: str) -> dict[str, str]:
        """Everything a profile sets, by kind of target; a valid profile has exactly one."""
        self._require("profile", name, f"add it to {self.path}")
        found = {kind: self._text("profiles", name, kind) for kind in SCOPES}
        return {kind: target for kind, target in found.items() if target is not None}

    def endpoint(self, scope: Scope) -> str:
        """The target of a scope: the URL of a server, the root of a cluster, or a storage URI.

        Raises `NotFound` for a server that is not configured.
        """
        if scope.kind == "server" and "://" not in scope.target:
            return self.server_url(scope.target)
        if scope.kind == "cluster":
            return self._text("clusters", scope.target, "root") or scope.target
        return scope.target

    def aliases(self) -> list[str]:
        """The names of the aliases."""
        return list(self._mapping("aliases"))

    def alias(self, name: str) -> Alias:
        """A stored query under a short name.

        Raises `NotFound` with the nearest name, and `InputError` for an incomplete alias.
        """
        self._require("alias", name, f"add it to {self.path}")
        server, query = (self._text("aliases", name, key) for key in ("server", "query"))
        if server is None or query is None:
            missing = "server" if server is None else "query"
            raise InputError(f"alias `{name}` has no `{missing}`", hint=f"add it in {self.path}")
        about = self._mapping("aliases", name)
        args = about.get("args") or []
        if not (isinstance(args, list) and all(isinstance(each, str) for each in args)):
            raise InputError(f"`aliases.{name}.args` in {self.path} is not a list of names")
        return Alias(
            name,
            server,
            query,
            self._text("aliases", name, "graph"),
            tuple(args),
            self._mapping("aliases", name, "params"),
            self._choice(("aliases", name, "format"), OUTPUT_FORMATS),
        )

    def profile(self, name: str) -> Scope:
        """The target of a profile.

        Raises `NotFound` with the nearest name, and `InputError` unless it has exactly one target.
        """
        bound = self.bindings(name)
        if len(bound) != 1:
            found = " and ".join(f"`{kind}`" for kind in bound) or "nothing"
            raise InputError(
                f"profile `{name}` binds {found}",
                hint=f"in {self.path} it must bind exactly one of {', '.join(SCOPES)}",
            )
        ((kind, target),) = bound.items()
        graph = self._text("profiles", name, "default_graph")
        return Scope(kind, target, f"profile `{name}`", graph)

    def check(self) -> None:
        """Raise `InputError` for a reserved actor, and for defaults that contradict each other."""
        if self.actor is not None:
            check_declared_actor(self.actor, where=f"`operator.actor` in {self.path}")
        given = [key for key in _PLACE_KEYS if self._text("defaults", key) is not None]
        if len(given) > 1 and given != ["server", "default_graph"]:
            raise InputError(
                f"`defaults.{given[0]}` and `defaults.{given[1]}` in {self.path} contradict each "
                "other",
                hint="each says which graph is meant; keep one of the two, or run `omnigraph use`",
            )

    def choose(self, defaults: Mapping[str, str]) -> None:
        """Write the default graph to the file; the rest of the file stays as it is.

        Raises `InputError` if the file cannot be read or written.
        """
        from ruamel.yaml import YAML

        from omnigraph.cli.files import replaced_file, unusable

        yaml = YAML()  # keeps comments and the order of keys
        yaml.preserve_quotes = True
        yaml.width = 1 << 20
        try:
            document = yaml.load(self.path) if self.path.exists() else None
            document = {} if document is None else document
            kept = document.setdefault("defaults", {})
            if kept is None:
                kept = document["defaults"] = {}
            for key in _PLACE_KEYS:
                kept.pop(key, None)
            kept.update(defaults)
            if not kept:
                del document["defaults"]
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with replaced_file(self.path) as stream:
                if document:
                    yaml.dump(document, stream)
        except OSError as problem:
            raise unusable("write", self.path, problem) from problem

    def line_of(self, *path: str) -> int | None:
        """The line of a setting in the file; None if it is not set."""
        from ruamel.yaml import YAML

        if not self.settings:
            return None
        value: Any = YAML().load(self.path)
        line = None
        for key in path:
            if not isinstance(value, Mapping) or key not in value:
                return None
            line = int(value.lc.key(key)[0]) + 1  # type: ignore[attr-defined]
            value = value[key]
        return line

    def unknown_keys(self) -> Iterator[str]:
        """The paths of unknown keys."""
        return _unknown(self.settings, _KEYS, "")

    def _require(self, noun: str, name: str, otherwise: str) -> None:
        """Raise `NotFound` with the nearest name, or with all names."""
        plural = f"{noun}es" if noun.endswith("s") else f"{noun}s"
        known = self._mapping(plural)
        if name not in known:
            listed = f"the {plural} are {', '.join(sorted(known))}" if known else otherwise
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


def home_of(environment: Mapping[str, str]) -> Path:
    """The directory of this user's settings."""
    return Path(environment.get(HOME_VARIABLE) or "~/.omnigraph").expanduser()


def read_config(environment: Mapping[str, str], warn: Callable[[str], None]) -> OperatorConfig:
    """The settings of this user; empty if there is no file.

    Raises `InputError` for a file that cannot be read or parsed. Unknown keys are ignored with a
    warning, so that an older program can read a newer file.
    """
    path = home_of(environment) / "config.yaml"
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
