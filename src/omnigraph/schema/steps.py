"""The steps of a migration plan, and their lint codes.

Steps are plain values that can be printed, sent and executed. They use new names, except in `from`
and in drops: the executor runs them in order, so a rename comes before the use of its new name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, field, fields
from enum import StrEnum
from types import MappingProxyType
from typing import Any, ClassVar, Literal, get_args

from omnigraph.model.records import dataclass
from omnigraph.model.types import ValueType
from omnigraph.schema.catalog import (
    Annotation,
    Check,
    Range,
    TypeKind,
    annotation_json,
    canonical_json,
)
from omnigraph.schema.encoding import read_annotation, read_type, type_json
from omnigraph.schema.rules import EDGE_ENDS
from omnigraph.schema.shape import ColumnsShape, ConstraintShape
from omnigraph.syntax.schema_ast import COLUMNS_KINDS, LiteralValue

# --- lint codes -----------------------------------------------------------------------------------


class Family(StrEnum):
    """The family in a code `OG-{family}-{number}`; those without codes are reserved.

    Code, family and tier never change their meaning; new meanings get new codes.
    """

    DESTRUCTIVE = "DS"
    MAY_FAIL = "MF"
    CONSTRAINT_DELETION = "CD"
    BACKWARD_INCOMPATIBLE = "BC"
    NAMING = "NM"
    OWNERSHIP = "OW"
    NON_LINEAR = "NL"
    VECTOR = "VE"
    EDGE = "ED"
    COST = "LK"


Tier = Literal["safe", "validated", "destructive"]
"""What applying the change can do to data: nothing, fail because of it, or lose it."""

Severity = Literal["error", "warn", "info"]


@dataclass(frozen=True, slots=True)
class LintCode:
    """One entry of the catalogue."""

    code: str
    tier: Tier
    meaning: str
    is_reserved: bool = False
    """In the catalogue, but never attached to a step."""
    severity: Severity = "error"

    @property
    def family(self) -> Family:
        """The subject of the code."""
        return Family(self.code[3:5])


_CATALOGUE = (
    LintCode("OG-DS-101", "destructive", "drop a graph", is_reserved=True),
    DROP_NODE_TYPE := LintCode("OG-DS-102", "destructive", "drop a node type"),
    DROP_EDGE_TYPE := LintCode("OG-DS-103", "destructive", "drop an edge type"),
    DROP_PROPERTY := LintCode("OG-DS-104", "destructive", "drop a property"),
    LintCode("OG-DS-105", "destructive", "drop a vector property", is_reserved=True),
    REQUIRED_WITHOUT_DEFAULT := LintCode(
        "OG-MF-103", "validated", "add a required property without a default to an existing type"
    ),
    LintCode("OG-MF-104", "validated", "make a nullable property required", is_reserved=True),
    TYPE_CHANGE := LintCode("OG-MF-106", "destructive", "change a property type"),
    ADD_CONSTRAINT := LintCode(
        "OG-MF-107", "validated", "add a constraint that stored entities have to keep"
    ),
    DROP_CONSTRAINT := LintCode("OG-CD-101", "safe", "remove a constraint"),
)
CODES = MappingProxyType({entry.code: entry for entry in _CATALOGUE})
"""Every code, by its text."""


# --- steps ----------------------------------------------------------------------------------------


DropMode = Literal["soft", "hard"]
"""Soft: older snapshots show the data until cleanup. Hard: it is removed after publication."""


@dataclass(frozen=True, slots=True)
class _Step:
    """The common part of all steps: a tag, a JSON form and a line of text."""

    kind: ClassVar[str]

    @property
    def lint(self) -> LintCode | None:
        """The lint code of this step, with its tier, if it has one."""
        code = getattr(self, "code", None)
        return None if code is None else CODES[code]

    def to_json(self) -> dict[str, Any]:
        """The step as JSON, tagged by `kind`."""
        form: dict[str, Any] = {"kind": self.kind}
        for member in fields(self):
            value = getattr(self, member.name)
            if value is not None or not member.metadata.get("optional"):
                form[member.metadata.get("name", member.name)] = _json(value)
        return form


@dataclass(frozen=True, slots=True)
class _PropertyStep(_Step):
    type_kind: TypeKind
    type_name: str
    property_name: str

    @property
    def _entity(self) -> str:
        return f"{self.type_kind}:{self.type_name}.{self.property_name}"


@dataclass(frozen=True, slots=True)
class AddType(_Step):
    """A new type with an empty table; an interface has no table."""

    kind: ClassVar[str] = "add_type"
    type_kind: TypeKind
    name: str

    def __str__(self) -> str:
        return f"add {self.type_kind} {self.name}"


@dataclass(frozen=True, slots=True)
class RenameType(_Step):
    """A new name for a type; its table stays where it is."""

    kind: ClassVar[str] = "rename_type"
    type_kind: TypeKind
    old_name: str = field(metadata={"name": "from"})
    new_name: str = field(metadata={"name": "to"})

    def __str__(self) -> str:
        return f"rename {self.type_kind} {self.old_name} to {self.new_name}"


@dataclass(frozen=True, slots=True)
class AddProperty(_PropertyStep):
    """A new property; existing entities get its default, or null if it has none."""

    kind: ClassVar[str] = "add_property"
    property_type: ValueType
    default: LiteralValue | None = field(default=None, metadata={"optional": True})

    def __str__(self) -> str:
        filled = "" if self.default is None else f" with default {canonical_json(self.default)}"
        return f"add property {self._entity}: {self.property_type}{filled}"


@dataclass(frozen=True, slots=True)
class RenameProperty(_Step):
    """A new name for a property; values are kept."""

    kind: ClassVar[str] = "rename_property"
    type_kind: TypeKind
    type_name: str
    old_name: str = field(metadata={"name": "from"})
    new_name: str = field(metadata={"name": "to"})

    def __str__(self) -> str:
        owner = f"{self.type_kind}:{self.type_name}"
        return f"rename property {owner}.{self.old_name} to {self.new_name}"


@dataclass(frozen=True, slots=True)
class ExtendEnum(_PropertyStep):
    """More values for an enum; only the catalog changes."""

    kind: ClassVar[str] = "extend_enum"
    added_values: tuple[str, ...]

    def __str__(self) -> str:
        return f"extend enum {self._entity} with {', '.join(self.added_values)}"


@dataclass(frozen=True, slots=True)
class WidenProperty(_PropertyStep):
    """A type that holds every value of the old one; values and entity ids are kept."""

    kind: ClassVar[str] = "widen_property"
    from_type: ValueType
    to_type: ValueType

    def __str__(self) -> str:
        return f"widen property {self._entity} from {self.from_type} to {self.to_type}"


@dataclass(frozen=True, slots=True)
class _ConstraintStep(_Step):
    type_kind: TypeKind
    type_name: str
    constraint: ConstraintShape
    code: str | None = field(default=None, metadata={"optional": True})

    @property
    def _where(self) -> str:
        return f"{self.type_kind}:{self.type_name}"


@dataclass(frozen=True, slots=True)
class AddConstraint(_ConstraintStep):
    """An index to be built later, or a rule that stored data must satisfy."""

    kind: ClassVar[str] = "add_constraint"

    def __str__(self) -> str:
        checked = f" (stored data is checked, {self.code})" if self.code else ""
        return f"add constraint {written_constraint(self.constraint)} to {self._where}{checked}"


@dataclass(frozen=True, slots=True)
class DropConstraint(_ConstraintStep):
    """An index or a rule is removed; stored values stay."""

    kind: ClassVar[str] = "drop_constraint"

    def __str__(self) -> str:
        coded = f" ({self.code})" if self.code else ""
        return f"drop constraint {written_constraint(self.constraint)} from {self._where}{coded}"


@dataclass(frozen=True, slots=True)
class UpdateTypeMetadata(_Step):
    """A changed `@description` or `@instruction`; the list is the new state."""

    kind: ClassVar[str] = "update_type_metadata"
    type_kind: TypeKind
    name: str
    annotations: tuple[Annotation, ...]

    def __str__(self) -> str:
        return f"update metadata of {self.type_kind}:{self.name}{_listed(self.annotations)}"


@dataclass(frozen=True, slots=True)
class UpdatePropertyMetadata(_PropertyStep):
    """A changed `@description` or `@default`; the list is the new state, values stay."""

    kind: ClassVar[str] = "update_property_metadata"
    annotations: tuple[Annotation, ...]

    def __str__(self) -> str:
        return f"update metadata of {self._entity}{_listed(self.annotations)}"


@dataclass(frozen=True, slots=True)
class DropProperty(_PropertyStep):
    """A property that the new version does not have."""

    kind: ClassVar[str] = "drop_property"
    mode: DropMode
    code: str | None = field(default=None, metadata={"optional": True})

    def __str__(self) -> str:
        return f"drop property {self._entity} ({self.mode}{_coded(self)})"


@dataclass(frozen=True, slots=True)
class DropType(_Step):
    """A type that the new version does not have."""

    kind: ClassVar[str] = "drop_type"
    type_kind: TypeKind
    name: str
    mode: DropMode
    code: str | None = field(default=None, metadata={"optional": True})

    def __str__(self) -> str:
        return f"drop {self.type_kind} {self.name} ({self.mode}{_coded(self)})"


@dataclass(frozen=True, slots=True)
class UnsupportedChange(_Step):
    """A difference that no step covers; a plan with one of these cannot be applied."""

    kind: ClassVar[str] = "unsupported_change"
    entity: str
    """`node:T.p`, `edge:E`, `interface:I` or `schema`."""
    reason: str
    code: str | None = field(default=None, metadata={"optional": True})

    @property
    def message(self) -> str:
        """The message with which applying the plan fails."""
        return f"[{self.code}] {self.reason}" if self.code else self.reason

    def __str__(self) -> str:
        lint = self.lint
        coded = f" [{lint.code}, {lint.tier}]" if lint is not None else ""
        return f"unsupported change on {self.entity}{coded}: {self.reason}"


Step = (
    AddType
    | RenameType
    | AddProperty
    | RenameProperty
    | ExtendEnum
    | WidenProperty
    | AddConstraint
    | DropConstraint
    | UpdateTypeMetadata
    | UpdatePropertyMetadata
    | DropProperty
    | DropType
    | UnsupportedChange
)


class StepWriter:
    """Collects the steps of a plan in order."""

    def __init__(self) -> None:
        self.steps: list[Step] = []

    def add(self, step: Step) -> None:
        """Append a step."""
        self.steps.append(step)

    def refuse(self, entity: str, reason: str, code: LintCode | None = None) -> None:
        """Append an unsupported change."""
        self.steps.append(UnsupportedChange(entity, reason, code.code if code else None))


def _json(value: Any) -> Any:
    if isinstance(value, ValueType):
        return type_json(value)
    if isinstance(value, ColumnsShape):
        return {value.kind.capitalize(): list(value.columns)}
    if isinstance(value, Range | Check):
        return {type(value).__name__: asdict(value)}
    if isinstance(value, Annotation):
        return annotation_json(value)
    return [_json(item) for item in value] if isinstance(value, tuple) else value


def read_step(document: Mapping[str, Any]) -> Step:
    """The step that `to_json` wrote; raises `ValueError` for one of a newer version."""
    kind = next((each for each in get_args(Step) if each.kind == document["kind"]), None)
    if kind is None:
        raise ValueError(f"an unknown step: {document['kind']}")
    named = {member.metadata.get("name", member.name): member.name for member in fields(kind)}
    given = {named[key]: _value(value) for key, value in document.items() if key in named}
    step: Step = kind(**given)
    return step


def _value(value: Any) -> Any:
    match value:
        case {"scalar": _, "nullable": _, "list": _, "enum_values": _}:
            return read_type(value)
        case {"Key": columns} | {"Unique": columns} | {"Index": columns}:
            (name,) = value
            kind = next(kind for kind in COLUMNS_KINDS if kind.capitalize() == name)
            return ColumnsShape(kind, tuple(columns))
        case {"Range": bounds}:
            return Range(**bounds)
        case {"Check": check}:
            return Check(**check)
        case {"name": _, "value": _}:
            return read_annotation(value)
        case list():
            return tuple(map(_value, value))
    return value


def written_constraint(constraint: ConstraintShape) -> str:
    """A constraint as it is written in a schema; the key of an edge with its ends first."""
    if isinstance(constraint, ColumnsShape):
        ends = [end for end in EDGE_ENDS if constraint.kind == "key" and end in constraint.columns]
        rest = [column for column in constraint.columns if column not in ends]
        return f"@{constraint.kind}({', '.join([*ends, *rest])})"
    if isinstance(constraint, Range):
        low = "" if constraint.minimum is None else constraint.minimum
        high = "" if constraint.maximum is None else constraint.maximum
        return f"@range({constraint.property}, {low}..{high})"
    return f'@check({constraint.property}, "{constraint.pattern}")'


def _listed(annotations: tuple[Annotation, ...]) -> str:
    shown = ", ".join(f"@{a.name}({canonical_json(a.value)})" for a in annotations)
    return f" to {shown}" if shown else " to none"


def _coded(step: DropProperty | DropType) -> str:
    return f", {step.code}" if step.code else ""
