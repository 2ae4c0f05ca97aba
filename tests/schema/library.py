"""Short ways for the schema tests to compile, to fail and to look inside."""

from __future__ import annotations

from omnigraph.errors import CompileError
from omnigraph.schema.admission import admit
from omnigraph.schema.compile import CompiledSchema, compile_schema
from omnigraph.schema.encoding import shape_hash
from omnigraph.schema.migration import MigrationPlan, plan_change
from omnigraph.schema.shape import SchemaShape, shape_of
from omnigraph.syntax.schema_parser import parse_schema

DOMAIN = "01ARZ3NDEKTSV4RRFFQ69G5FAV"


def compiled(text: str) -> CompiledSchema:
    """A schema of a new graph."""
    return compile_schema(text, domain=DOMAIN)


def shape(text: str) -> SchemaShape:
    """What a schema means."""
    return shape_of(admit(parse_schema(text)))


def hash_of(text: str) -> str:
    """The hash of what a schema means."""
    return shape_hash(shape(text))


def evolved(*texts: str) -> CompiledSchema:
    """The last of several versions of a schema, each compiled against the one before."""
    first, *rest = texts
    current = compiled(first)
    for text in rest:
        current = compile_schema(text, accepted=current.ir)
    return current


def planned(old: str, new: str, *, allow_data_loss: bool = False) -> MigrationPlan:
    """The plan from one text to another."""
    return plan_change(compiled(old).ir, new, allow_data_loss=allow_data_loss).plan


def steps(old: str, new: str) -> list[dict[str, object]]:
    """The steps from one text to another, as JSON."""
    return planned(old, new).to_json()["steps"]  # type: ignore[no-any-return]


def only(old: str, new: str) -> dict[str, object]:
    """The only step from one text to another."""
    (step,) = steps(old, new)
    return step


def refused(old: str, new: str) -> dict[str, object]:
    """The only refused change from one text to another."""
    plan = planned(old, new)
    assert not plan.supported
    (step,) = plan.unsupported
    return step.to_json()


def failure(text: str, kind: type[CompileError] = CompileError) -> CompileError:
    """The error a text is rejected with, which has to be of exactly this kind."""
    try:
        compiled(text)
    except CompileError as error:
        assert kind is CompileError or type(error) is kind, f"{type(error).__name__}: {error}"
        return error
    raise AssertionError(f"admitted: {text}")


def underlined(error: CompileError) -> str:
    """The characters an error points at."""
    at = error.position
    assert at is not None
    return at.line_text[at.column - 1 : at.column - 1 + at.width]


def check_rejected(text: str, kind: type[CompileError], message: str, pointed_at: str) -> None:
    """A text is rejected with this class of error, these words, and a finger on this place."""
    error = failure(text, kind)
    assert message in error.message
    assert underlined(error) == pointed_at
