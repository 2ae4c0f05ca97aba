"""The options of the Spark data source: a type of a graph, and how it is read or written."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Protocol, get_args

from omnigraph.effects.environment import s3_variables, take_over_s3_variables
from omnigraph.errors import InputError
from omnigraph.loading.inputs import type_key
from omnigraph.loading.mapping import PLAIN, TableMapping
from omnigraph.loading.mapping_arguments import Mappings
from omnigraph.loading.records.problems import name_hint
from omnigraph.model.ids import check_declared_actor
from omnigraph.model.load_options import ErrorOptions, MappingArguments
from omnigraph.model.receipts import AbsentMeaning, LoadMode, check_absent
from omnigraph.model.records import dataclass
from omnigraph.schema.catalog import Catalog
from omnigraph.storage.layout import MAIN

if TYPE_CHECKING:
    from omnigraph.branching.moments import SchemaHistory
    from omnigraph.commit.kernel import Kernel
    from omnigraph.schema.catalog import TableType
    from omnigraph.storage.reader import SnapshotReader

MODES: tuple[LoadMode, ...] = get_args(LoadMode)

_S3 = "s3 variables"


class SentToProcesses:
    """An object that Spark pickles and sends from the driver to planning processes and executors.

    Unpickling it sets the S3 variables of the driver in that process. The credentials are in the
    pickled bytes only, not in options, which Spark shows in plans.
    """

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, _S3: s3_variables()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        take_over_s3_variables(state.pop(_S3))
        self.__dict__.update(state)


class SourceActor(Protocol):
    """The actor that the data source reads and writes as, if a policy applies (`spark.acting`)."""

    def pinned(
        self, path: str, type: str, branch: str, snapshot: str | None
    ) -> tuple[SnapshotReader, TableType, bool]:
        """The rows and the type as the actor sees them; True if it sees all of the branch."""

    def again(self, path: str, branch: str, commit_id: str, schema_hash: str) -> SnapshotReader:
        """The rows of `pinned` at a known commit, for another process."""

    def feed(self, path: str, branch: str) -> tuple[Kernel, SchemaHistory]:
        """The kernel and the schemas for the change feed, limited to what the actor sees."""

    def require_writer(self, path: str, branch: str, from_: str | None) -> None:
        """Raise `PolicyDenied` if the actor may not write; called before tasks write rows."""

    def require_merger(self, path: str, source: str, target: str) -> None:
        """Raise `PolicyDenied` if the actor may not merge; called before batches are merged."""


ACTING_OPTIONS = ("policy", "claims")
"""Options that define an actor, besides `actor`."""


def require_decided(options: Mapping[str, str], acting: SourceActor | None) -> None:
    """Refuse options of an actor if no policy applies: they would have no effect."""
    for name in ACTING_OPTIONS:
        if name in options and acting is None:
            raise InputError(
                f"the option '{name}' needs the option 'policy', and a source of `omnigraph.spark`",
                hint="name the file of the bundle as `policy`",
            )


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The checked options of one frame."""

    path: str
    type: str
    branch: str = MAIN
    snapshot: str | None = None
    columns: tuple[str, ...] | None = None
    filter: str | None = None
    mode: str | None = None
    actor: str | None = None
    idempotency_key: str | None = None
    absent: str = "keep"
    map: str | None = None
    """A JSON object with properties by column."""
    on_error: str = "fail"
    errors_out: str | None = None
    max_error_share: str | None = None
    acting: SourceActor | None = None
    """The actor by the options `policy`, `actor` and `claims`."""

    @classmethod
    def of(cls, options: Mapping[str, str], acting: SourceActor | None = None) -> SourceOptions:
        """Parse Spark's options; raises `InputError` if one is unknown or missing."""
        known = [each.name for each in fields(cls) if each.name != "acting"]
        given = known_options(options, [*known, *ACTING_OPTIONS])
        require_decided(given, acting)
        if not given.get("type"):
            raise InputError(
                "the data source omnigraph needs the option 'type'",
                hint='spark.read.format("omnigraph").option("type", "Person").load("graph.omni")',
            )
        others = {n: value for n, value in given.items() if n not in ("columns", *ACTING_OPTIONS)}
        others["branch"] = others.get("branch") or MAIN
        columns = names_in("columns", given["columns"]) if "columns" in given else None
        return cls(**others, columns=columns, acting=acting)

    def table_key(self, catalog: Catalog) -> str:
        """The table key, from the name of a type or the key itself."""
        return type_key(self.type, catalog)

    def mapping(self, table_key: str, catalog: Catalog) -> TableMapping:
        """The option `map`; raises `InputError` for a text that is no mapping of the type."""
        if self.map is None:
            return PLAIN
        try:
            given = json.loads(self.map)
        except ValueError:
            given = None
        if not isinstance(given, dict):
            raise InputError(
                f"the option 'map' is no JSON object: {self.map}",
                hint='.option("map", \'{"Full Name": "name"}\')',
            )
        arguments = MappingArguments({table_key: given})
        return Mappings(arguments, [(table_key, None)], catalog, has_records=False).of(table_key)

    def load_mode(self, *, overwrite: bool) -> LoadMode:
        """The option `mode`, or else the counterpart of Spark's own mode."""
        asked = self.mode or ("overwrite" if overwrite else "append")
        for known in MODES:
            if asked == known:
                return known
        raise InputError(f"there is no mode '{asked}'", hint=name_hint(asked, MODES, "modes"))

    def absent_meaning(self, mode: LoadMode) -> AbsentMeaning:
        """The option `absent` of a merge; raises `InputError` for another value or mode."""
        check_absent(self.absent, mode)
        return "null" if self.absent == "null" else "keep"

    def error_options(self) -> ErrorOptions:
        """How bad rows are handled; raises `InputError` for an unknown word or a wrong share."""
        number = error_share(self.max_error_share)
        given: Any = self.on_error  # checked by `ErrorOptions`
        return ErrorOptions(errors_out=self.errors_out, on_error=given, max_error_share=number)

    def checked_actor(self) -> str | None:
        """The actor of a write; raises `InputError` if the name is not allowed."""
        if self.actor is not None:
            check_declared_actor(self.actor, where="the option `actor`")
        return self.actor


def error_share(text: str | None) -> float | None:
    """The option `max_error_share`; raises `InputError` for a text that is no number."""
    try:
        return None if text is None else float(text)
    except ValueError:
        raise InputError(
            f"the option 'max_error_share' is '{text}', which is no number",
            hint='.option("max_error_share", "0.01")',
        ) from None


def known_options(
    options: Mapping[str, str],
    known: Sequence[str],
    where: str = "the data source omnigraph",
) -> dict[str, str]:
    """Spark's options by lower-case name; raises `InputError` for an unknown one."""
    given = {name.lower(): value for name, value in options.items()}
    for name in given:
        if name not in known:
            raise InputError(
                f"{where} has no option '{name}'", hint=name_hint(name, known, "options")
            )
    if not given.get("path"):
        raise InputError(
            f"{where} needs the option 'path'", hint='name the graph, as in .load("graph.omni")'
        )
    return given


def names_in(option: str, text: str) -> tuple[str, ...]:
    """Comma-separated names; raises `InputError` if one is empty or repeated."""
    names = tuple(name.strip() for name in text.split(","))
    for name in names:
        if not name or names.count(name) > 1:
            raise InputError(
                f"the option '{option}' is '{text}', where "
                + (f"'{name}' is named twice" if name else "a name is missing"),
                hint="write names with commas between them, as in 'id,name'",
            )
    return names


def whole_number(option: str, text: str | None, default: int) -> int:
    """A positive integer; raises `InputError` for other texts."""
    if text is None:
        return default
    if text.isascii() and text.isdigit() and int(text) > 0:
        return int(text)
    raise InputError(f"the option '{option}' is '{text}'", hint="it is a number from 1 on")
