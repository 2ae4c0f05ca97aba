"""The OpenAPI description: complete, current, and true of a running server."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as with_seed

from omnigraph.server.config import GraphSpec
from omnigraph.server.routes import HANDLERS
from omnigraph.wire.openapi import openapi
from omnigraph.wire.operations import OPERATIONS
from tests.server.live import QUERIES, TOKENS, Live, new_graph, serving, with_tokens
from tests.support.budgets import budget

OPERATION_IDS = {
    "health",
    "listGraphs",
    *(
        f"cluster_{name}"
        for name in [
            "getSnapshot",
            "getBlob",
            "headBlob",
            "query",
            "read",
            "export",
            "mutate",
            "mutate_if_graph_commit",
            "change",
            "list_queries",
            "invoke_query",
            "invoke_query_if_graph_commit",
            "getSchema",
            "applySchema",
            "load",
            "loadNdjson",
            "ingest",
            "listBranches",
            "createBranch",
            "deleteBranch",
            "mergeBranches",
            "listCommits",
            "getCommit",
            "getCommitChanges",
            "pollChanges",
            "captureChangeBaseline",
        ]
    ),
}
OURS = {
    "ready",
    "openapi",
    "cluster_health",
    "openSession",
    "cluster_describeQueries",
    "cluster_describeSchema",
    "cluster_explain",
    "cluster_getPermissions",
    "cluster_getStats",
    "cluster_planSchema",
    "cluster_rebaseSchema",
    "cluster_planMerge",
    "cluster_diff",
    "cluster_getEntityHistory",
    "cluster_revertCommit",
    "cluster_planRevert",
    "cluster_cherryPickCommit",
    "cluster_planCherryPick",
    "cluster_table",
    "cluster_listReviews",
    "cluster_openReview",
    "cluster_exportReviews",
    "cluster_getReview",
    "cluster_diffReview",
    "cluster_editReview",
    "cluster_commentReview",
    "cluster_resolveComment",
    "cluster_reviewReview",
    "cluster_checkReview",
    "cluster_reportCheck",
    "cluster_mergeReview",
    "cluster_closeReview",
    "cluster_reopenReview",
    "cluster_listTags",
    "cluster_language",
    "cluster_createTag",
    "cluster_deleteTag",
}
"""What this product adds."""


def operations(document: dict[str, Any]) -> list[tuple[str, str, dict[str, Any]]]:
    return [
        (path, method, operation)
        for path, item in document["paths"].items()
        for method, operation in item.items()
    ]


def test_c_srv_043_operation_ids_are_unique_and_as_listed(guarded: Live):
    document = httpx.get(f"{guarded.url}/openapi.json").json()
    assert document["openapi"].startswith("3.1")
    found = [operation["operationId"] for _, _, operation in operations(document)]
    assert len(found) == len(set(found))
    assert set(found) == OPERATION_IDS | OURS
    assert document["components"]["securitySchemes"].keys() == {"bearer_token"}
    deprecated = {o["operationId"] for _, _, o in operations(document) if o.get("deprecated")}
    assert deprecated == {"cluster_read", "cluster_change", "cluster_ingest"}
    public = {o["operationId"] for _, _, o in operations(document) if "security" not in o}
    assert public == {"health", "cluster_health", "ready", "openapi", "openSession"}


def test_c_srv_043_an_open_server_has_no_security_scheme(open_server: Live):
    document = httpx.get(f"{open_server.url}/openapi.json").json()
    assert "securitySchemes" not in document["components"]
    assert not any("security" in operation for _, _, operation in operations(document))


def test_every_operation_has_a_handler_and_no_handler_is_left_over():
    assert HANDLERS.keys() == {operation.id for operation in OPERATIONS}


def test_every_reference_of_the_description_resolves():
    document = openapi()
    text = orjson.dumps(document).decode()
    named = {part.split('"')[0] for part in text.split('"#/components/schemas/')[1:]}
    assert named <= document["components"]["schemas"].keys()


def test_statuses_and_headers_that_only_some_operations_have_are_declared():
    document = openapi()
    found = {operation["operationId"]: operation for _, _, operation in operations(document)}
    # A commit that the caller may not read looks unknown.
    changes = found["cluster_getCommitChanges"]["responses"]
    assert "404" in changes and "403" not in changes
    writes = ("mutate", "change", "load", "loadNdjson", "ingest", "invoke_query")
    assert all("424" in found[f"cluster_{name}"]["responses"] for name in writes)
    for name in ("getBlob", "headBlob"):
        blob = found[f"cluster_{name}"]
        sent = {each["name"] for each in blob["parameters"] if each["in"] == "header"}
        assert {"If-Match", "If-None-Match"} <= sent
        assert {"ETag", "Accept-Ranges", "Omnigraph-Snapshot-Id"} <= blob["responses"]["200"][
            "headers"
        ].keys()
        assert "Location" in blob["responses"]["302"]["headers"]
    schemas = document["components"]["schemas"]
    assert "graph_commit_id" not in schemas["LegacyReadAnswer"]["properties"]


# --- against a running server ---------------------------------------------------------------------

EXAMPLES = budget(3, 100)
"""Of each operation, of requests that are as described and of some that are not."""


@cache
def description() -> dict[str, Any]:
    """The description, which is built from all operations."""
    return openapi()


@pytest.fixture(scope="module")
def schemathesis() -> Any:
    """The library, which takes half a second to import: the workers that only collect do not."""
    import schemathesis

    @schemathesis.serializer("application/x-ndjson")
    def ndjson(_context, value) -> bytes:
        """Lines as they are."""
        return value if isinstance(value, bytes) else str(value).encode("utf-8", "replace")

    return schemathesis


@pytest.fixture(scope="module")
def tried(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """A server whose every operation is allowed to one actor."""
    folder = tmp_path_factory.mktemp("tried")
    new_graph(folder / "team.omni")
    (folder / "people.gq").write_text(QUERIES)
    (folder / "policy.yaml").write_text(
        "version: 1\ngroups: { all: [act-ana] }\nrules:\n"
        "  - id: everything\n    allow:\n      actors: { group: all }\n"
        "      actions: [read, export, change, schema_apply, branch_create, branch_delete,"
        " branch_merge, invoke_query]\n"
    )
    spec = GraphSpec(
        "default", str(folder / "team.omni"), (folder / "people.gq",), folder / "policy.yaml"
    )
    with serving(spec, environment=with_tokens()) as live:
        yield live


@pytest.mark.slow
@pytest.mark.parametrize("operation_id", sorted(OPERATION_IDS | OURS))
def test_generated_requests_get_no_5xx_and_what_the_description_promises(
    tried: Live, operation_id: str, schemathesis: Any
):
    schema = schemathesis.openapi.from_dict(description()).include(operation_id=operation_id)
    (found,) = schema.get_all_operations()
    operation = found.ok()

    _try(operation, schemathesis.GenerationMode.POSITIVE, tried)
    if operation.body or list(operation.iter_parameters()):
        _try(operation, schemathesis.GenerationMode.NEGATIVE, tried)


def _try(operation, mode, live: Live) -> None:
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi.checks import (
        content_type_conformance,
        response_schema_conformance,
        status_code_conformance,
    )

    checks = [
        not_a_server_error,
        status_code_conformance,
        content_type_conformance,
        response_schema_conformance,
    ]

    @with_seed(7)
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        phases=(Phase.explicit, Phase.generate),
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def attempt(case) -> None:
        if "graph_id" in (case.path_parameters or {}) and mode.is_positive:
            case.path_parameters["graph_id"] = "default"
        case.call_and_validate(
            base_url=live.url,
            headers={"Authorization": f"Bearer {TOKENS['act-ana']}"},
            checks=checks,
        )

    attempt()


def test_the_committed_description_is_current():
    page = Path(__file__).parents[2] / "docs" / "reference" / "openapi.json"
    assert orjson.loads(page.read_bytes()) == orjson.loads(orjson.dumps(openapi()))
