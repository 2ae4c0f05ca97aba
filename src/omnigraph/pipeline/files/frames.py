"""Sources, transforms and mappings as Spark frames; errors of Spark as problems of the file.

Building a frame reads no rows: Spark opens footers and the first line of CSV files. Where Spark
would read rows to infer the columns (JSON, and CSV with `inferSchema`), validation gives it the
first lines of one file instead.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import islice
from typing import TYPE_CHECKING, Any

from omnigraph.errors import InputError, OmnigraphError
from omnigraph.loading.files import Files
from omnigraph.model.arrow import DST, SRC
from omnigraph.pipeline.data_source.source import register
from omnigraph.pipeline.files.document import (
    EdgeKeys,
    Mapped,
    PipelineDocument,
    PipelineProblem,
    SourceKeys,
)
from omnigraph.pipeline.files.inputs import PathFiles, SourceInput
from omnigraph.syntax.suggest import did_you_mean

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession

KNOWN_FORMATS = (
    *("csv", "json", "parquet", "orc", "avro", "text", "xml", "jdbc", "table", "omnigraph"),
)
SAMPLE_LINES = 1_000
SAMPLE_BYTES = 1 << 18

Path = tuple[str | int, ...]


class Frames:
    """The frames of one pipeline, in a session of their own that keeps views from the caller's."""

    def __init__(
        self,
        document: PipelineDocument,
        session: SparkSession,
        inputs: Mapping[str, SourceInput],
        *,
        samples: bool = False,
    ) -> None:
        self._document = document
        self._session = session.newSession()
        # Texts without a zone are UTC, as in every load.
        self._session.conf.set("spark.sql.session.timeZone", "UTC")
        register(self._session)
        self._inputs = inputs
        self._samples = samples
        self.problems: list[PipelineProblem] = []
        self.notes: list[str] = []
        self.steps: dict[str, DataFrame] = {}
        """The frame of each source and transform that could be built."""
        with _quiet_pyspark():
            self._build()

    @property
    def session(self) -> SparkSession:
        """The session that has the views."""
        return self._session

    def _build(self) -> None:
        from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
        from pyspark.errors import PySparkException

        for name in self._document.keys.sources:
            if name not in self._inputs:
                continue  # the problem of this source has been reported
            try:
                self._add(name, self._source(self._inputs[name]))
            except (PySparkException, Py4JJavaError) as error:
                self._complain(("sources", name), error)
            except OmnigraphError as error:
                self._note_problem(("sources", name), error.message, error.hint)
        self._transform()

    def _add(self, name: str, frame: DataFrame) -> None:
        frame.createOrReplaceTempView(name)
        self.steps[name] = frame

    # --- sources ---

    def _source(self, found: SourceInput) -> DataFrame:
        keys = found.keys
        if keys.format == "table":
            return self._session.table(keys.table or "")
        if not (found.groups or found.example):
            options = {"snapshot": found.snapshot} if found.snapshot is not None else {}
            paths = [self._document.resolved(path) for path in keys.path]
            return self._reader(keys, options).load(paths[0] if len(paths) == 1 else paths or None)
        groups = list(found.groups)
        if not groups and found.example is not None:
            return self._group(keys, found.example).where("false")
        frames = [self._group(keys, group) for group in groups]
        whole = frames[0]
        for frame in frames[1:]:
            whole = whole.unionByName(frame)
        return whole

    def _group(self, keys: SourceKeys, group: PathFiles) -> DataFrame:
        if self._samples and self._infers(keys):
            return self._sampled(keys, group)
        reader = self._reader(keys, {"basePath": group.base})
        return reader.load(list(group.files))

    def _reader(self, keys: SourceKeys, more: Mapping[str, str]) -> DataFrameReader:
        options = {name: _text(value) for name, value in keys.options.items()}
        if keys.format in ("csv", "json", "xml"):
            # By default Spark silently reads what it cannot parse as null.
            options.setdefault("mode", "FAILFAST")
        if keys.format == "csv":
            # Otherwise Spark applies the header of one file to all.
            options.setdefault("enforceSchema", "false" if self._has_header(keys) else "true")
        reader = self._session.read.format(keys.format).options(**options, **more)
        return reader if keys.columns is None else reader.schema(keys.columns)

    @staticmethod
    def _has_header(keys: SourceKeys) -> bool:
        return _text(keys.options.get("header", "false")).lower() == "true"

    @staticmethod
    def _infers(keys: SourceKeys) -> bool:
        """Whether Spark would read rows to learn the columns."""
        if keys.columns is not None:
            return False
        is_asked = _text(keys.options.get("inferSchema", "false")).lower() == "true"
        return keys.format == "json" or (keys.format == "csv" and is_asked)

    def _sampled(self, keys: SourceKeys, group: PathFiles) -> DataFrame:
        path = group.files[0]
        if _text(keys.options.get("multiLine", "false")).lower() == "true":
            return self._reader(keys, {"basePath": group.base}).load(path)
        self.notes.append(f"the columns are those of the first lines of {path}")
        lines = self._session.sparkContext.parallelize(list(_first_lines(path)), 1)
        reader = self._reader(keys, {})
        return reader.json(lines) if keys.format == "json" else reader.csv(lines)

    # --- transforms ---

    def _transform(self) -> None:
        """Build transforms in the order of their dependencies, which the file need not follow."""
        from pyspark.errors import PySparkException

        waiting = dict.fromkeys(self._document.keys.transforms)
        needs: dict[str, str] = {}
        while waiting:
            before = len(waiting)
            for name in list(waiting):
                try:
                    self._add(name, self._session.sql(self._document.sql_of(name)))
                except PySparkException as error:
                    missing = _missing_table(error)
                    if missing in waiting and missing != name:
                        needs[name] = missing
                        continue
                    if missing == name:
                        needs[name] = name
                        continue
                    if not self._follows_a_problem(missing):
                        self._complain(("transforms", name), error)
                except OSError as error:
                    self._note_problem(("transforms", name), str(error), None)
                del waiting[name]
            if len(waiting) == before:
                break
        for name in waiting:
            chain = [name]
            while (following := needs.get(chain[-1])) is not None and following not in chain:
                chain.append(following)
            if following == name:
                circle = " → ".join([*chain, name])
                self._note_problem(
                    ("transforms", name),
                    f"needs itself: {circle}",
                    "a transform reads sources and transforms that do not read it",
                )

    def _follows_a_problem(self, missing: str | None) -> bool:
        """Whether a table is missing because of a problem that was reported already."""
        known = {*self._document.keys.sources, *self._document.keys.transforms}
        return missing in known and missing not in self.steps

    # --- mappings ---

    def columns_of(self, mapped: Mapped) -> dict[str, tuple[Path, str]] | None:
        """By column of the mapped frame: its expression, and the expression's path in the file.

        None if the columns of the source are used unchanged.
        """
        keys = mapped.keys
        columns: dict[str, tuple[Path, str]] = {}
        for name, text in (keys.map or {}).items():
            columns[name] = (*mapped.path, "map", name), text
        if isinstance(keys, EdgeKeys):
            for name, given in ((SRC, keys.src), (DST, keys.dst)):
                if given is not None:
                    columns[name] = (*mapped.path, name), given
        return None if keys.map is None and not columns else columns

    def rows_of(self, mapped: Mapped) -> DataFrame:
        """The rows of a mapping, with the columns of its type."""
        from pyspark.sql import functions as sql

        frame = self.steps[mapped.keys.source]
        if mapped.keys.where is not None:
            frame = frame.where(mapped.keys.where)
        columns = self.columns_of(mapped)
        if columns is None:
            return frame
        return frame.select(*(sql.expr(text).alias(name) for name, (_, text) in columns.items()))

    def checked_columns(self, mapped: Mapped) -> dict[str, Any]:
        """The Spark type of each column of a mapping that resolves; others become problems."""
        with _quiet_pyspark():
            return self._checked_columns(mapped)

    def _checked_columns(self, mapped: Mapped) -> dict[str, Any]:
        from pyspark.errors import PySparkException
        from pyspark.sql import functions as sql
        from pyspark.sql.types import BooleanType

        frame = self.steps[mapped.keys.source]
        found: dict[str, Any] = {}
        if mapped.keys.where is not None:
            where = (*mapped.path, "where")
            try:
                kind = frame.select(sql.expr(mapped.keys.where)).schema[0].dataType
                if not isinstance(kind, BooleanType):
                    self._note_problem(
                        where, f"is of type {kind.simpleString()}, not a condition", None
                    )
            except PySparkException as error:
                self._complain(where, error, frame.columns)
        with suppress(PySparkException):
            # Resolve all columns at once; if that fails, one by one, to report every problem.
            return {each.name: each.dataType for each in self.rows_of(mapped).schema}
        for name, (path, text) in (self.columns_of(mapped) or {}).items():
            try:
                found[name] = frame.select(sql.expr(text)).schema[0].dataType
            except PySparkException as error:
                self._complain(path, error, frame.columns)
        return found

    # --- problems ---

    @contextmanager
    def told_where(self) -> Iterator[None]:
        """Raise Spark's error about a value as `InputError`, with the place of the expression."""
        try:
            yield
        except OmnigraphError as error:
            cause = _data_error(error)
            if cause is None:
                raise
            message, _ = explained(cause, [], [])
            places = [f"{each.place}: {each.key}: " for each in self._places_of(cause)]
            raise InputError(
                f"{places[0] if places else ''}{message}",
                hint="mend the value in its source, or make null of it: `try_cast(… as …)`, or for"
                " records that cannot be read the option `mode: PERMISSIVE`",
            ) from error

    def _places_of(self, error: Any) -> Iterator[PipelineProblem]:
        """The places of the failed expression in the file."""
        document = self._document
        for context in error.getQueryContext():
            fragment = context.fragment()
            for mapped in document.mappings:
                for path, text in (self.columns_of(mapped) or {}).values():
                    if fragment in text:
                        yield document.problem(path, "")
                if fragment in (mapped.keys.where or ""):
                    yield document.problem((*mapped.path, "where"), "")
            for name in document.keys.transforms:
                if fragment in document.sql_of(name):
                    yield document.problem(("transforms", name), "")

    def _complain(self, path: Path, error: Any, columns: list[str] | None = None) -> None:
        known = [*self._document.keys.sources, *self._document.keys.transforms]
        message, hint = explained(error, columns or [], known)
        self._note_problem(path, message, hint)

    def _note_problem(self, path: Path, message: str, hint: str | None) -> None:
        self.problems.append(self._document.problem(path, message, hint))


@contextmanager
def _quiet_pyspark() -> Iterator[None]:
    """Keep PySpark from printing errors with a stack trace: they become problems of the file."""
    from pyspark.logger import PySparkLogger

    logger = PySparkLogger.getLogger("SQLQueryContextLogger")
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before


def _text(value: Any) -> str:
    """An option as the text that Spark expects."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _first_lines(path: str) -> Iterator[str]:
    with Files().stream(path) as stream:
        data: bytes = stream.read(SAMPLE_BYTES)
    lines = data.decode("utf-8-sig", errors="replace").splitlines()
    if len(data) == SAMPLE_BYTES:
        lines = lines[:-1]  # the last line may be incomplete
    return islice(lines, SAMPLE_LINES)


def _missing_table(error: Any) -> str | None:
    """The name of a table that a query uses and Spark does not know."""
    if error.getCondition() != "TABLE_OR_VIEW_NOT_FOUND":
        return None
    name: str = error.getMessageParameters()["relationName"]
    return name.replace("`", "")


def _data_error(error: BaseException) -> Any:
    """Spark's error about a value or a file that caused a load to fail; None for other causes."""
    from pyspark.errors import PySparkException

    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, PySparkException):
        cause = cause.__cause__
    if cause is None:
        return None
    about_data = (cause.getSqlState() or "").startswith("22")
    return cause if about_data or cause.getCondition() in _FILE_CONDITIONS else None


_FILE_CONDITIONS = ("FAILED_READ_FILE.NO_HINT", "FAILED_READ_FILE.CANNOT_READ_FILE_FOOTER")
_SQLSTATE = re.compile(r"\s*SQLSTATE: \w+")


def _parts_of(error: Any) -> tuple[str, str, Mapping[str, str]]:
    """Text, condition and parameters of a Spark exception, also of one unknown to PySpark."""
    if hasattr(error, "getCondition"):
        return str(error), error.getCondition() or "", error.getMessageParameters() or {}
    text = str(error.java_exception.getMessage())
    found = re.match(r"\[([A-Z_.]+)\]", text)
    return text, found[1] if found else "", {}


def explained(error: Any, columns: list[str], steps: list[str]) -> tuple[str, str | None]:
    """An error of Spark in our wording, and a hint."""
    text, condition, facts = _parts_of(error)
    match condition.partition(".")[0]:
        case "UNRESOLVED_COLUMN":
            name = facts["objectName"].replace("`", "")
            known = columns or re.findall(r"`([^`]+)`", facts.get("proposal", ""))
            listed = f"the columns are {', '.join(known)}" if known else None
            return f"there is no column `{name}`", did_you_mean(name, known) or listed
        case "TABLE_OR_VIEW_NOT_FOUND":
            name = facts["relationName"].replace("`", "")
            hint = did_you_mean(name, steps) or f"there are {', '.join(steps)}"
            return f"there is no source, transform or table `{name}`", hint
        case "UNRESOLVED_ROUTINE":
            return (
                f"there is no function {facts['routineName']}",
                "functions are those of Spark SQL",
            )
        case "PATH_NOT_FOUND":
            return f"there is no file at {facts['path']}", None
        case "DATA_SOURCE_NOT_FOUND":
            name = text.partition("data source: ")[2].partition(". ")[0]
            hint = did_you_mean(name, KNOWN_FORMATS) or (
                "install it with `--spark-conf spark.jars.packages=…` (spark=SparkOptions(conf=…));"
                " others are"
                f" {', '.join(KNOWN_FORMATS)}"
            )
            return f"Spark has no data source `{name}`", hint
        case "PARSE_SYNTAX_ERROR":
            place = re.search(r"\(line (\d+), pos (\d+)\)", text)
            at = f", line {place[1]}, column {int(place[2]) + 1} of the SQL" if place else ""
            return f"syntax error at {facts['error']}{at}", None
    sentence = text.strip().split("\n", 1)[0]
    sentence = _SQLSTATE.sub("", sentence.removeprefix(f"[{condition}]")).strip().rstrip(".")
    return (sentence[:1].lower() + sentence[1:] if sentence else condition), None
