"""The catalogue of schema lint codes.

A code is `OG-{family}-{number}`. Code, family and tier never change their meaning once they are
here; new meanings get new codes.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Literal


class Family(StrEnum):
    """What a code is about. Families without codes are reserved."""

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
"""What applying the change could do to data: nothing, fail on it, or lose it."""

Severity = Literal["error", "warn", "info"]


@dataclass(frozen=True, slots=True)
class LintCode:
    """One entry of the catalogue."""

    code: str
    family: Family
    tier: Tier
    meaning: str
    severity: Severity = "error"
    is_reserved: bool = False
    """Catalogued, but never attached to a step."""


DROP_GRAPH = LintCode(
    "OG-DS-101", Family.DESTRUCTIVE, "destructive", "drop a graph", is_reserved=True
)
DROP_NODE_TYPE = LintCode("OG-DS-102", Family.DESTRUCTIVE, "destructive", "drop a node type")
DROP_EDGE_TYPE = LintCode("OG-DS-103", Family.DESTRUCTIVE, "destructive", "drop an edge type")
DROP_PROPERTY = LintCode("OG-DS-104", Family.DESTRUCTIVE, "destructive", "drop a property")
DROP_VECTOR_PROPERTY = LintCode(
    "OG-DS-105", Family.DESTRUCTIVE, "destructive", "drop a vector property", is_reserved=True
)
REQUIRED_WITHOUT_DEFAULT = LintCode(
    "OG-MF-103",
    Family.MAY_FAIL,
    "validated",
    "add a required property without a default to an existing type",
)
NULLABLE_TO_REQUIRED = LintCode(
    "OG-MF-104",
    Family.MAY_FAIL,
    "validated",
    "make a nullable property required; reported as OG-MF-106",
    is_reserved=True,
)
TYPE_CHANGE = LintCode("OG-MF-106", Family.MAY_FAIL, "destructive", "change a property type")

CODES: MappingProxyType[str, LintCode] = MappingProxyType(
    {
        entry.code: entry
        for entry in (
            DROP_GRAPH,
            DROP_NODE_TYPE,
            DROP_EDGE_TYPE,
            DROP_PROPERTY,
            DROP_VECTOR_PROPERTY,
            REQUIRED_WITHOUT_DEFAULT,
            NULLABLE_TO_REQUIRED,
            TYPE_CHANGE,
        )
    }
)
"""Every code, by its text."""
