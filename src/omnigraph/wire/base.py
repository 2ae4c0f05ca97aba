"""What all requests and answers have in common, and how a document is read strictly."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from omnigraph.errors import InputError

Document = TypeVar("Document", bound=BaseModel)


class Body(BaseModel):
    """What a caller sends. A field that is not declared is an error, and nothing is converted."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, populate_by_name=True)


class Shape(BaseModel):
    """What a server answers. Later versions may add fields, so readers ignore what is new."""

    model_config = ConfigDict(extra="ignore", populate_by_name=True)


def _trimmed(name: str) -> str:
    # Policy and engine must see one and the same name, so it is trimmed before either does.
    trimmed = name.strip()
    if not trimmed:
        raise ValueError("is empty")
    return trimmed


BranchName = Annotated[str, AfterValidator(_trimmed), Field(min_length=1)]
"""A branch as a caller writes it, without the space around it."""


def branch_name(text: str) -> str:
    """A branch from a path or a query string, trimmed; raises `InputError` for an empty one."""
    try:
        return _trimmed(text)
    except ValueError:
        raise InputError(
            "a branch name is empty", hint="name the branch, or leave it out"
        ) from None


Parameters = dict[str, Any]
"""Values of query parameters by name; the engine reads them against the declared types."""


def read_document(model: type[Document], document: object) -> Document:
    """The request a JSON document stands for; raises `InputError` naming the first bad field."""
    try:
        return model.model_validate(document)
    except ValidationError as problem:
        raise _refusal(model, problem.errors(include_url=False)[0]) from None


def _refusal(model: type[BaseModel], found: ErrorDetails) -> InputError:
    place = ".".join(str(part) for part in found["loc"])
    known = ", ".join(field.alias or name for name, field in model.model_fields.items())
    if found["type"] == "extra_forbidden":
        return InputError(f"unknown field `{place}`", hint=f"the fields are {known}")
    if found["type"] == "missing":
        return InputError(f"field `{place}` is missing", hint=f"the fields are {known}")
    reason = found["msg"].removeprefix("Value error, ")
    reason = reason[:1].lower() + reason[1:]
    if not place:
        return InputError(reason, hint=f"the fields are {known}")
    return InputError(f"field `{place}`: {reason}")
