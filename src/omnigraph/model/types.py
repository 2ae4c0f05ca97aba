"""The types a property, a parameter or an expression can have."""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from typing import Annotated, Literal, TypeAlias

from omnigraph.model.json_object import Json, JsonObject
from omnigraph.model.records import dataclass

ID = "id"
"""The column of the id of an entity."""
VECTOR_DIMENSION_MAX = 2**31 - 1


class Scalar(StrEnum):
    """The scalar types of both languages, with their names in source texts."""

    STRING = "String"
    BOOL = "Bool"
    I32 = "I32"
    I64 = "I64"
    U32 = "U32"
    U64 = "U64"
    F32 = "F32"
    F64 = "F64"
    DATE = "Date"
    DATETIME = "DateTime"
    BLOB = "Blob"
    VECTOR = "Vector"

    @property
    def is_integer(self) -> bool:
        """I32, I64, U32 or U64."""
        return self in INTEGER_BOUNDS

    @property
    def is_float(self) -> bool:
        """F32 or F64."""
        return self in (Scalar.F32, Scalar.F64)

    @property
    def is_numeric(self) -> bool:
        """An integer or a float."""
        return self.is_integer or self.is_float


INTEGER_BOUNDS: dict[Scalar, tuple[int, int]] = {
    Scalar.I32: (-(2**31), 2**31 - 1),
    Scalar.I64: (-(2**63), 2**63 - 1),
    Scalar.U32: (0, 2**32 - 1),
    Scalar.U64: (0, 2**64 - 1),
}
"""Smallest and largest value of each integer type, inclusive."""

SCALAR_NAMES: tuple[str, ...] = tuple(s.value for s in Scalar if s is not Scalar.VECTOR)
"""The scalar names of the grammars; a vector is written with its dimension."""


@dataclass(frozen=True, slots=True)
class ValueType:
    """A scalar, a list of scalars, an enum or a vector, possibly nullable.

    >>> str(ValueType(Scalar.I32, nullable=True))
    'I32?'
    >>> str(ValueType(Scalar.STRING, is_list=True))
    '[String]'
    >>> str(ValueType(Scalar.STRING, enum_values=("a", "b"), nullable=True))
    'enum(a, b)?'
    >>> str(ValueType(Scalar.VECTOR, vector_dim=8))
    'Vector(8)'
    """

    scalar: Scalar
    nullable: bool = False
    is_list: bool = False
    enum_values: tuple[str, ...] | None = None
    """Allowed values, sorted; the scalar is then String."""
    vector_dim: int | None = None
    """Number of components; the scalar is then Vector."""

    def __str__(self) -> str:
        if self.enum_values is not None:
            name = f"enum({', '.join(self.enum_values)})"
        elif self.vector_dim is not None:
            name = f"Vector({self.vector_dim})"
        else:
            name = self.scalar.value
        if self.is_list:
            name = f"[{name}]"
        return name + "?" if self.nullable else name

    @property
    def is_vector(self) -> bool:
        """Whether this is a vector."""
        return self.scalar is Scalar.VECTOR

    @property
    def is_blob(self) -> bool:
        """Whether this is a blob."""
        return self.scalar is Scalar.BLOB

    @property
    def is_plain_scalar(self) -> bool:
        """A single comparable value: no list, vector or blob."""
        return not (self.is_list or self.is_vector or self.is_blob)

    @property
    def is_numeric(self) -> bool:
        """A single number."""
        return not self.is_list and self.scalar.is_numeric

    def with_nullable(self, nullable: bool) -> ValueType:
        """The same type with another nullability."""
        return self if nullable == self.nullable else replace(self, nullable=nullable)

    @property
    def item(self) -> ValueType:
        """The element type of a list."""
        return replace(self, is_list=False, nullable=False)


@dataclass(frozen=True, slots=True)
class RecordsType:
    """A list of records, possibly nullable: the type of a parameter that a mutation loops over.

    >>> str(RecordsType((("name", ValueType(Scalar.STRING)),)))
    '[{ name: String }]'
    """

    fields: tuple[tuple[str, ValueType], ...]
    """At least one; no two have the same name."""
    nullable: bool = False

    def __str__(self) -> str:
        name = f"[{{ {', '.join(f'{field}: {type}' for field, type in self.fields)} }}]"
        return name + "?" if self.nullable else name

    def with_nullable(self, nullable: bool) -> RecordsType:
        """The same type with another nullability."""
        return replace(self, nullable=nullable)


ParameterType: TypeAlias = ValueType | RecordsType
"""The types that a query may declare for a parameter."""


# --- column names that no table may use, because the table format computes them itself ------------

ROW_ID = "_rowid"
ROW_ADDRESS = "_rowaddr"
LAST_UPDATED_AT = "_row_last_updated_at_version"

VIRTUAL_COLUMNS = frozenset(
    {ROW_ID, ROW_ADDRESS, "_rowoffset", "_row_created_at_version", LAST_UPDATED_AT}
)
"""Exactly these names; others with the same beginnings are allowed."""


# --- indexes --------------------------------------------------------------------------------------

IndexKind = Literal["btree", "inverted", "vector"]
"""Ordered values; the words of a text; distances between vectors."""

INDEX_KINDS: frozenset[IndexKind] = frozenset({"btree", "inverted", "vector"})


@dataclass(frozen=True, slots=True)
class IndexSpec(JsonObject):
    """An index of one kind on one column of a table."""

    column: Annotated[str, Json("property")]
    """A property, or the column of ids or endpoints."""
    kind: IndexKind

    def __str__(self) -> str:
        return f"{self.column} ({self.kind})"


@dataclass(frozen=True, slots=True)
class PendingIndex(JsonObject):
    """A declared index that cannot be built yet. This is not a failure."""

    property: str
    reason: str
