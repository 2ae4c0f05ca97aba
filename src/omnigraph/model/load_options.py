"""Options of a load that few callers need, grouped by what they are about."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from os import PathLike
from typing import Any, Literal, TypeVar, get_args

from omnigraph.errors import InputError
from omnigraph.model.records import dataclass

Options = TypeVar("Options")

ColumnMap = Mapping[str, str | None]
"""Columns, or expressions over them, to properties; None skips the column."""
MapArgument = Mapping[str, str | ColumnMap | None] | Sequence[str]
"""A mapping for the only table of a load; mappings by type or file; or texts such as
`Person:Full Name=name`."""
WhereArgument = Mapping[str, Any] | Sequence[str]
"""Values by column for the only table of a load, or by type or file; or texts such as
`City:type=city`."""

OnError = Literal["fail", "skip"]


@dataclass(frozen=True, slots=True)
class SparkOptions:
    """Where Spark runs a load, and how. Naming a session or a master asks for Spark."""

    session: Any = None
    """A `SparkSession` to use; without it the active one, or one that is started and stopped."""
    master: str | None = None
    """The master of a session that is started, such as `local[4]` or `spark://host:7077`."""
    conf: Mapping[str, str] | None = None
    """Settings of a session that is started, such as `spark.executor.memory`."""

    @property
    def is_named(self) -> bool:
        """Whether the caller named a session or a master."""
        return self.session is not None or self.master is not None


@dataclass(frozen=True, slots=True)
class ErrorOptions:
    """What counts as an error of the input, how errors are handled, and how they are reported."""

    max_errors: int | None = None
    """How many problems the error or the receipt lists, 100 by default; all are counted."""
    errors_out: str | PathLike[str] | None = None
    """A file for all problems as JSON lines; those of skipped records include the record."""
    ignore_unknown: bool = False
    """Skip columns that are not properties, instead of refusing the input."""
    on_error: OnError = "fail"
    """How a bad record is handled: `fail` refuses the whole input, `skip` loads it without its bad
    records, and without edges whose nodes are among them. The receipt counts them by type."""
    max_error_share: float | None = None
    """The share of records that may be skipped, from 0 to 1; with more, the input is refused."""

    def __post_init__(self) -> None:
        """Raise `InputError` for invalid values."""
        if self.on_error not in get_args(OnError):
            raise InputError(
                f"`on_error` is 'fail' or 'skip', not {self.on_error!r}",
                hint="fail refuses an input with a bad record, skip loads it without these",
            )
        share: object = self.max_error_share
        if share is None:
            return
        if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share <= 1:
            raise InputError(
                f"`max_error_share` is a number from 0 to 1, not {share!r}",
                hint="0.01 allows one bad record in a hundred",
            )
        if self.on_error != "skip":
            raise InputError(
                "`max_error_share` needs `on_error='skip'`: otherwise no record may be bad",
                hint="add `on_error='skip'` (--on-error skip), or leave the share out",
            )


@dataclass(frozen=True, slots=True)
class LoadOrigin:
    """The origin of an input, as far as the caller knows it."""

    metadata: Mapping[str, Any] | None = None
    """A JSON object that is stored with the commit; `CommitInfo.metadata` returns it."""
    input_digest: str | None = None
    """Equal for equal inputs. With it, frames may have an ``operation_id`` too: frames cannot be
    read twice to detect different inputs under one key."""


@dataclass(frozen=True, slots=True)
class CsvOptions:
    """The format of CSV files; each option for all files, or by type or file."""

    delimiter: str | Mapping[str, str] | Sequence[str] | None = None
    """The character between cells; without it a comma, and a tab in `.tsv` files."""
    list_separator: str | Mapping[str, str] | Sequence[str] | None = None
    """The separator between the items of a list; without it, a list is a JSON array."""


@dataclass(frozen=True, slots=True)
class MappingArguments:
    """The arguments of a load that map columns to properties."""

    map: MapArgument | None = None
    where: WhereArgument | None = None
    csv: CsvOptions = field(default_factory=CsvOptions)

    @property
    def is_given(self) -> bool:
        """Whether any is given."""
        return self != MappingArguments()


@dataclass(frozen=True, slots=True)
class LoadObserver:
    """Functions that are called while a load runs."""

    on_engine: Callable[[Any], None] | None = None
    """Called once, before anything is read, with `engine` and the `reason` it was chosen."""
    on_stage: Callable[[Any], None] | None = None
    """Called with the `stage`, its `tasks` and `rows` during a load by Spark or by threads."""


def checked_options(given: Options | None, kind: type[Options], argument: str) -> Options:
    """``given``, or the defaults; raises `InputError` if it is not a ``kind``."""
    if given is None:
        return kind()
    if not isinstance(given, kind):
        raise InputError(
            f"`{argument}` takes {kind.__name__}, not {type(given).__name__}",
            hint=f"pass `{argument}=omnigraph.{kind.__name__}(…)`",
        )
    return given


def map_texts(given: MapArgument | None) -> list[str] | None:
    """A mapping in the form of requests and the command line: `Type:column=property`.

    >>> map_texts({"Person": {"Full Name": "name", "age": None}})
    ['Person:Full Name=name', 'Person:age=']
    """
    if given is None:
        return None
    if not isinstance(given, Mapping):
        return list(given)
    texts: list[str] = []
    for name, value in given.items():
        if isinstance(value, Mapping):
            texts += [f"{name}:{column}={target or ''}" for column, target in value.items()]
        else:
            texts.append(f"{name}={value or ''}")
    return texts
