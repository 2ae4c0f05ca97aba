"""The grammar of a pipeline file: its keys as models, and the place of each in the text.

Finds all problems that need neither a graph nor Spark: unknown and missing keys, wrong values,
names that two steps share. The documentation's table of keys is generated from the same models.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
)

from omnigraph.errors import InputError, PipelineInvalid
from omnigraph.model.ids import EntityKind, check_branch_name
from omnigraph.model.json_object import JsonObject
from omnigraph.model.load_options import ErrorOptions, OnError
from omnigraph.model.receipts import AbsentMeaning, LoadMode
from omnigraph.model.records import dataclass
from omnigraph.model.reviews import CHECK_NAME_CHARACTERS_MAX
from omnigraph.review.checks import Expected
from omnigraph.strict_yaml import Node, Plain, plain_value, read_document
from omnigraph.syntax.suggest import did_you_mean

Incremental = Literal["files", "partitions"]

_STEP_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PIPELINE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")


def _listed(value: Any) -> Any:
    """A single value stands for a list of one."""
    return value if isinstance(value, list) else [value]


def _option(value: Any) -> Any:
    if isinstance(value, str | bool | int | float):
        return value
    raise ValueError("an option is a text, a number, true or false")


SqlText = Annotated[str, Field(min_length=1)]
OneOrMore = BeforeValidator(_listed)
Option = Annotated[Any, BeforeValidator(_option)]


# --- keys -----------------------------------------------------------------------------------------


class _Keys(BaseModel):
    """A mapping with known keys only."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=False)


class PipelineTarget(_Keys):
    """Where the rows are loaded, and how."""

    branch: str | None = Field(
        None, description="the branch that is loaded; `pipeline/NAME` by default"
    )
    from_: str = Field("main", alias="from", description="the branch it is created from")
    merge_into: str | None = Field(
        None, description="the branch that gets the rows once every check has passed"
    )
    delete_branch: bool = Field(True, description="delete the branch when it has been merged")
    on_failed_check: Literal["keep", "review"] = Field(
        "keep",
        description="`keep` the branch, or also open a `review` of it, with the results of checks",
    )

    @field_validator("branch", "from_", "merge_into")
    @classmethod
    def _named_well(cls, name: str | None) -> str | None:
        if name is not None:
            check_branch_name(name)
        return name


class SourceKeys(_Keys):
    """Rows that Spark reads."""

    format: str = Field(
        description="csv, json, parquet, orc, avro, text, xml, jdbc, table, omnigraph, or the name"
        " of another data source of Spark",
        min_length=1,
    )
    path: Annotated[list[str], OneOrMore] = Field(
        default_factory=list,
        description="a file, directory or pattern, or several; relative to this file",
    )
    table: str | None = Field(None, description="of `format: table`: a table of Spark's catalog")
    options: dict[str, Option] = Field(
        default_factory=dict, description="options of Spark's reader, such as `header` and `sep`"
    )
    columns: str | None = Field(
        None,
        alias="schema",
        description="the columns and their types as in SQL, such as `id bigint, name string`",
    )
    incremental: Incremental | None = Field(
        None, description="`files` or `partitions`: read only those that no earlier run has loaded"
    )


class TransformKeys(_Keys):
    """Rows that a query makes from sources and other transforms."""

    sql: SqlText | None = Field(None, description="a query over sources and other transforms")
    file: str | None = Field(None, description="the file with the query, instead of `sql`")


class NodeKeys(_Keys):
    """Rows of a source or transform as nodes of a type."""

    source: str = Field(alias="from", description="the source or transform that has the rows")
    where: SqlText | None = Field(None, description="a condition that rows must meet")
    map: dict[str, SqlText] | None = Field(
        None,
        description="the expression for each property, and for `id`; without it, columns have the"
        " names of properties",
    )


class EdgeKeys(NodeKeys):
    """Rows of a source or transform as edges of a type."""

    src: SqlText | None = Field(None, description="the key or id of the node it leaves")
    dst: SqlText | None = Field(None, description="the key or id of the node it leads to")


class EmbedKeys(_Keys):
    """A vector that is computed from a text of the same node."""

    type: str = Field(description="a node type")
    property: str = Field(description="its vector, with `@embed(source)` in the schema")


class CheckKeys(_Keys):
    """A query that is run on the branch before it is merged."""

    name: str = Field(
        description="what the check is called", min_length=1, max_length=CHECK_NAME_CHARACTERS_MAX
    )
    file: str = Field(description="a `.gq` file")
    query: str | None = Field(None, description="which query of the file, if it has several")
    params: dict[str, Any] = Field(default_factory=dict, description="parameters of the query")
    expect: str = Field(
        "empty",
        description="`empty`, `nonempty`, `rows(N)`, or `value(X)` for one row with one value",
    )

    @field_validator("expect")
    @classmethod
    def _known(cls, text: str) -> str:
        Expected.of(text)
        return text.strip()

    def meets(self, rows: list[dict[str, Any]]) -> bool:
        """Whether the rows of a query are as expected."""
        return Expected.of(self.expect).is_met(len(rows), rows[0] if rows else None)


class PipelineKeys(_Keys):
    """A pipeline."""

    version: Literal[1] = Field(description="of this format: 1")
    name: str = Field(description="the name under which runs are remembered in the graph")
    graph: str | None = Field(
        None,
        description="where the graph lies, relative to this file;"
        " `--store`, or `read_pipeline(graph=…)`, overrides it",
    )
    target: PipelineTarget | None = Field(
        None, description="the branches; by default a branch of its own that is merged into main"
    )
    mode: LoadMode = Field("merge", description="`merge`, `append` or `overwrite`, as of a load")
    absent: AbsentMeaning = Field(
        "keep", description="`keep` or `null`: what a merge makes of properties that are not mapped"
    )
    on_error: OnError = Field(
        "fail",
        description="`fail` or `skip`: a bad record refuses the input, or is left out",
    )
    max_error_share: float | None = Field(
        None, description="of `on_error: skip`: the share of records that may be bad, from 0 to 1"
    )
    errors_out: str | None = Field(None, description="a file that gets every problem as JSON lines")
    sources: dict[str, SourceKeys] = Field(description="rows that Spark reads, by name")
    transforms: dict[str, TransformKeys] = Field(
        default_factory=dict, description="rows made by SQL, by name, in any order"
    )
    nodes: dict[str, Annotated[list[NodeKeys], OneOrMore]] = Field(
        default_factory=dict, description="the mapping of each node type, or several"
    )
    edges: dict[str, Annotated[list[EdgeKeys], OneOrMore]] = Field(
        default_factory=dict, description="the mapping of each edge type, or several"
    )
    embed: list[EmbedKeys] = Field(
        default_factory=list, description="vectors to compute where texts are new or changed"
    )
    checks: list[CheckKeys] = Field(
        default_factory=list, description="queries that decide whether the branch is merged"
    )

    @field_validator("name")
    @classmethod
    def _short(cls, name: str) -> str:
        if _PIPELINE_NAME.fullmatch(name) is None:
            raise ValueError(
                f"`{name}` is no name of a pipeline: up to 80 letters, digits, `-`, `_` and `.`"
            )
        return name


@dataclass(frozen=True, slots=True)
class Mapped:
    """One mapping: the type, and its place in the file."""

    kind: EntityKind
    type_name: str
    keys: NodeKeys
    path: tuple[str | int, ...]


# --- problems -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PipelineProblem(JsonObject):
    """Something in a pipeline file that has to be changed before it can run."""

    place: str
    """File, line and column, such as `crm.yaml:12:5`."""
    key: str
    """The key in the file, such as `nodes.Person.map.age`."""
    message: str
    hint: str | None = None

    @property
    def text(self) -> str:
        """The problem on one line."""
        hint = f" ({self.hint})" if self.hint else ""
        return f"{self.place}: {self.key}: {self.message}{hint}"


def invalid(name: str, problems: list[PipelineProblem]) -> PipelineInvalid:
    """The error with all problems of a file."""
    first = problems[0]
    if len(problems) == 1:
        error = PipelineInvalid(f"{first.place}: {first.key}: {first.message}", hint=first.hint)
    else:
        head = f"{name} has {len(problems)} problems; nothing was read or written"
        error = PipelineInvalid("\n".join([head, *(each.text for each in problems)]))
    error.details["problems"] = [each.to_dict() for each in problems]
    return error


# --- documents ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PipelineDocument:
    """A pipeline file that was read and follows the grammar."""

    path: Path
    keys: PipelineKeys
    root: Node

    @property
    def folder(self) -> Path:
        """The folder of the file, which relative paths refer to."""
        return self.path.absolute().parent

    @property
    def branch(self) -> str:
        """The branch that rows are loaded on."""
        named = self.keys.target.branch if self.keys.target is not None else None
        return named or f"pipeline/{self.keys.name}"

    @property
    def base(self) -> str:
        """The branch that ``branch`` is created from."""
        return "main" if self.keys.target is None else self.keys.target.from_

    @property
    def merge_into(self) -> str | None:
        """The branch that gets the rows after the checks; None if nothing is merged."""
        return "main" if self.keys.target is None else self.keys.target.merge_into

    @property
    def deletes_branch(self) -> bool:
        """Whether the branch is deleted after the merge."""
        return self.keys.target is None or self.keys.target.delete_branch

    @property
    def opens_review(self) -> bool:
        """Whether a failed check opens a review of the branch."""
        return self.keys.target is not None and self.keys.target.on_failed_check == "review"

    @property
    def mappings(self) -> Iterator[Mapped]:
        """Every mapping, nodes first."""
        groups: tuple[tuple[EntityKind, Any], ...]
        groups = (("node", self.keys.nodes), ("edge", self.keys.edges))
        for kind, group in groups:
            named: Mapping[str, Sequence[NodeKeys]] = group
            for name, several in named.items():
                for at, keys in enumerate(several):
                    yield Mapped(kind, name, keys, (f"{kind}s", name, at))

    def resolved(self, path: str) -> str:
        """A path of the file, relative to its folder; URIs are left as they are."""
        return path if "://" in path else str(self.folder / Path(path).expanduser())

    def sql_of(self, name: str) -> str:
        """The query of a transform; raises `OSError` for an unreadable file."""
        keys = self.keys.transforms[name]
        if keys.sql is not None:
            return keys.sql
        return Path(self.resolved(keys.file or "")).read_text(encoding="utf-8")

    def problem(
        self, path: tuple[str | int, ...], message: str, hint: str | None = None
    ) -> PipelineProblem:
        """A problem of a value in the file."""
        path = _document_path(self.root, path)
        node = node_at(self.root, path)
        return PipelineProblem(node.place, _dotted(path) or "the file", message, hint)

    @property
    def missing_files(self) -> bool:
        """Whether a file with a query is missing."""
        named = [each.file for each in self.keys.transforms.values()]
        named += [each.file for each in self.keys.checks]
        return any(name and not Path(self.resolved(name)).is_file() for name in named)

    def digest(self) -> str:
        """A digest of everything that determines what a run does, except its input.

        It covers queries in files, but neither comments nor the URI of the graph.
        """
        # Without defaults, so that keys added by later versions do not change the digest.
        document = self.keys.model_dump(by_alias=True, exclude={"graph"}, exclude_defaults=True)
        texts = [self.sql_of(name) for name in self.keys.transforms]
        texts += [
            Path(self.resolved(check.file)).read_text(encoding="utf-8")
            for check in self.keys.checks
        ]
        text = json.dumps([document, texts], sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()


def read_file(path: Path) -> PipelineDocument:
    """Read a pipeline file; raises `PipelineInvalid` with all problems that need no graph."""
    root = read_document(path, PipelineInvalid)
    try:
        keys = PipelineKeys.model_validate(plain_value(root))
    except ValidationError as error:
        problems = [_problem(root, each) for each in error.errors()]
        raise invalid(path.name, problems) from None
    document = PipelineDocument(path, keys, root)
    found = list(_static_problems(document))
    if found:
        raise invalid(path.name, found)
    return document


def node_at(root: Node, path: tuple[str | int, ...]) -> Node:
    """The value at a path, or the nearest enclosing one."""
    node = root
    for part in path:
        inner: Node | None = None
        if isinstance(node.value, dict):
            inner = node.value.get(str(part))
        elif isinstance(node.value, list) and isinstance(part, int) and part < len(node.value):
            inner = node.value[part]
        if inner is None:
            break
        node = inner
    return node


def _dotted(path: tuple[str | int, ...]) -> str:
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def _problem(root: Node, error: Any) -> PipelineProblem:
    """An error of the models in our wording, with its place in the text."""
    path = _document_path(root, error["loc"])
    node = node_at(root, path)
    hint: str | None = None
    match error["type"]:
        case "extra_forbidden":
            known = _known_keys(path[:-1])
            listed = f"the keys here are {', '.join(known)}"
            hint = did_you_mean(str(path[-1]), known) or listed
            return PipelineProblem(node.place, _dotted(path), "unknown key", hint)
        case "missing":
            around = node_at(root, path[:-1])
            where = _dotted(path[:-1]) or "the file"
            return PipelineProblem(around.place, where, f"needs the key `{path[-1]}`")
        case "literal_error":
            allowed = error["ctx"]["expected"].replace("'", "`")
            message = f"`{error['input']}` is not possible; it is {allowed}"
            return PipelineProblem(node.place, _dotted(path), message)
        case "value_error":
            cause = error["ctx"]["error"]
            hint = cause.hint if isinstance(cause, InputError) else None
            return PipelineProblem(node.place, _dotted(path), str(cause), hint)
        case "string_type":
            message = f"must be a text, not {_shown(node)}"
            hint = "put it in quotes" if isinstance(node.value, Plain) else None
            return PipelineProblem(node.place, _dotted(path), message, hint)
        case "string_too_short":
            return PipelineProblem(node.place, _dotted(path), "is empty")
    words = {"dict_type": "a mapping", "model_type": "a mapping", "list_type": "a list"}
    wanted = words.get(error["type"])
    if wanted is not None:
        return PipelineProblem(node.place, _dotted(path), f"must be {wanted}, not {_shown(node)}")
    sentence = error["msg"][:1].lower() + error["msg"][1:]
    return PipelineProblem(node.place, _dotted(path), sentence)


def _shown(node: Node) -> str:
    match node.value:
        case Plain(spelling, kind):
            return f"{kind} (`{spelling}`)" if spelling else kind
        case list():
            return "a list"
        case dict():
            return "a mapping"
    return "a text"


def _document_path(root: Node, location: tuple[str | int, ...]) -> tuple[str | int, ...]:
    """A location in the models as a path in the document, in which a list of one may be bare."""
    path: list[str | int] = []
    node: Node = root
    for part in location:
        if not isinstance(part, int) or isinstance(node.value, list):
            path.append(part)
            node = node_at(node, (part,))
    return tuple(path)


_MODELS: Mapping[str, type[_Keys]] = {
    "target": PipelineTarget,
    "sources": SourceKeys,
    "transforms": TransformKeys,
    "nodes": NodeKeys,
    "edges": EdgeKeys,
    "embed": EmbedKeys,
    "checks": CheckKeys,
}
"""The nested models, by their key."""


def _known_keys(path: tuple[str | int, ...]) -> list[str]:
    model = _MODELS[str(path[0])] if path else PipelineKeys
    return [field.alias or name for name, field in model.model_fields.items()]


def _static_problems(document: PipelineDocument) -> Iterator[PipelineProblem]:
    """The problems that do not depend on the graph and the data."""
    keys = document.keys
    steps = [*keys.sources, *keys.transforms]
    for group in ("sources", "transforms"):
        for name in getattr(keys, group):
            if _STEP_NAME.fullmatch(name) is None:
                hint = "queries name it as a table: use letters, digits and `_`"
                yield document.problem((group, name), f"`{name}` is no name of a table", hint)
    for name in keys.transforms:
        if name in keys.sources:
            yield document.problem(
                ("transforms", name), f"there is a source called `{name}` too", "rename one"
            )
    for name, source in keys.sources.items():
        yield from _source_problems(document, name, source)
    for name, transform in keys.transforms.items():
        if (transform.sql is None) == (transform.file is None):
            yield document.problem(("transforms", name), "needs one of `sql` and `file`")
    if not (keys.nodes or keys.edges):
        yield document.problem((), "maps no type", "say under `nodes` or `edges` what rows become")
    for mapped in document.mappings:
        if mapped.keys.source not in steps:
            hint = did_you_mean(mapped.keys.source, steps) or f"there are {', '.join(steps)}"
            message = f"there is no source or transform `{mapped.keys.source}`"
            yield document.problem((*mapped.path, "from"), message, hint)
    target = keys.target
    if document.merge_into == document.branch:
        yield document.problem(
            ("target", "merge_into"), f"branch `{document.branch}` cannot be merged into itself"
        )
    if target is not None and target.merge_into is None:
        for group in ("checks", "embed"):
            if getattr(keys, group):
                yield document.problem(
                    (group,),
                    "needs `merge_into` in `target`: without it, rows are visible at once",
                    "load a branch of its own, and merge it into the one that readers see",
                )
    try:
        ErrorOptions(on_error=keys.on_error, max_error_share=keys.max_error_share)
    except InputError as error:
        yield document.problem(("max_error_share",), error.message, error.hint)
    names = [check.name for check in keys.checks]
    for at, name in enumerate(names):
        if name in names[:at]:
            yield document.problem(("checks", at, "name"), f"there are two checks called `{name}`")


def _source_problems(
    document: PipelineDocument, name: str, keys: SourceKeys
) -> Iterator[PipelineProblem]:
    path = ("sources", name)
    if (keys.table is not None) != (keys.format == "table"):
        yield document.problem(path, "`format: table` and `table` belong together")
    if keys.format == "table" and keys.path:
        yield document.problem((*path, "path"), "a table of the catalog has no path")
    if keys.format == "omnigraph" and "type" not in keys.options:
        yield document.problem(path, "needs `options: {type: …}`, the type whose rows are read")
    if keys.incremental is None:
        return
    if not keys.path or any("://" in each for each in keys.path) or keys.format == "omnigraph":
        yield document.problem(
            (*path, "incremental"), "needs the `path` of files that this machine can list"
        )
    if document.keys.mode == "overwrite":
        yield document.problem(
            (*path, "incremental"),
            "does not go with `mode: overwrite`, which would drop what earlier files brought",
        )
