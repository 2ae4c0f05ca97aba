"""Which tools there are, and what they take."""

from __future__ import annotations

from pathlib import Path

import pytest

from omnigraph.errors import Denied, InputError
from omnigraph.mcp.toolbox import ToolAccess, stored_in_files, tools_of
from omnigraph.model.signatures import FieldDescriptor, FieldKind, QuerySignature
from tests.server.live import new_graph


@pytest.mark.parametrize(
    ("pattern", "branch", "is_allowed"),
    [
        ("main", "main", True),
        ("main", "mainly", False),
        ("agent/*", "agent/1", True),
        ("agent/*", "agent/a/b", True),
        ("agent/*", "agent", False),
        ("agent/*", "agents/1", False),
        ("agent", "agent/1", False),
    ],
)
def test_a_branch_is_writable_by_name_or_below_a_prefix(
    pattern: str, branch: str, is_allowed: bool
):
    access = ToolAccess.of([pattern])
    if is_allowed:
        access.require_writable(branch)
    else:
        with pytest.raises(Denied):
            access.require_writable(branch)


@pytest.mark.parametrize("pattern", ["", "*", "a//b", "../x", "a/*/b"])
def test_a_malformed_branch_is_refused_at_the_start(pattern: str):
    with pytest.raises(InputError):
        ToolAccess.of([pattern])


def test_every_kind_of_parameter_has_a_schema():
    kinds: list[FieldKind]
    kinds = ["string", "bool", "int", "bigint", "float", "date", "datetime", "blob"]
    parameters = [FieldDescriptor(name=kind, kind=kind, nullable=False) for kind in kinds]
    parameters += [
        FieldDescriptor(name="tags", kind="list", nullable=True, item_kind="string"),
        FieldDescriptor(name="near", kind="vector", nullable=False, vector_dim=3),
    ]
    schema = QuerySignature("q", False, tuple(parameters)).parameters_schema()
    assert schema["required"] == [*kinds, "near"]
    properties = schema["properties"]
    assert properties["date"] == {"type": "string", "format": "date"}
    assert properties["tags"]["anyOf"][0] == {"type": "array", "items": {"type": "string"}}
    assert properties["near"]["anyOf"][0]["minItems"] == 3
    assert schema["additionalProperties"] is False


def test_a_stored_query_cannot_take_the_name_of_another_tool(tmp_path: Path):
    graph = new_graph(tmp_path / "team.omni", "")
    file = tmp_path / "clash.gq"
    file.write_text("query graph_schema { match { $p: Person } return { $p.name } }")
    with pytest.raises(InputError, match="two tools are called 'graph_schema'"):
        tools_of(graph, stored_in_files(graph, [file]), ToolAccess())
    with pytest.raises(InputError, match="no stored queries at"):
        stored_in_files(graph, [tmp_path / "none"])
