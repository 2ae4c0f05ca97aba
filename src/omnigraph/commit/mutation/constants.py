"""The values a statement assigns: each is one for the whole statement."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass

from omnigraph.commit.external_blobs import ExternalBlobs
from omnigraph.errors import InternalError
from omnigraph.model.types import ValueType
from omnigraph.model.values import BlobUri, Value, assigned_value, property_value
from omnigraph.query import expressions as ex
from omnigraph.query.plan import Assignment
from omnigraph.schema.catalog import Property


@dataclass(frozen=True, slots=True)
class Inputs:
    """What a caller brings: bound parameters, the instant of `now()`, and the reach of its URIs."""

    parameters: Mapping[str, Value | None]
    now: dt.datetime
    external: ExternalBlobs

    def assigned(self, assignment: Assignment) -> Value | None:
        """The value a property gets; raises `ValueConversionError` if it cannot hold it."""
        return self.as_property(assignment.value, assignment.property, assignment.type)

    def endpoint(self, expression: ex.Expression, name: str) -> str:
        """The node id given for `from` or `to`."""
        value = self.as_property(expression, name, ex.STRING)
        assert isinstance(value, str)
        return value

    def as_property(self, expression: ex.Expression, name: str, type: ValueType) -> Value | None:
        """A literal, a parameter or `now()` as a property of ``type`` holds it."""
        value = assigned_value(self._value(expression), type, name)
        # Only a replaced table keeps references.
        return self.external.copy(value.uri, name) if isinstance(value, BlobUri) else value

    def _value(self, expression: ex.Expression) -> object:
        match expression:
            case ex.Constant():
                return expression.value
            case ex.ParameterValue():
                return self.parameters[expression.name]
            case ex.CurrentTime():
                return self.now
        raise InternalError(f"{expression} is not a value that can be assigned")


def unassigned(declared: Property) -> Value | None:
    """What an insert gives a property it does not name: its default, or null if it may be null."""
    return property_value(declared.default, declared.type, declared.name, strict=True)
