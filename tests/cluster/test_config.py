"""`cluster.yaml` and the files it names, before anything is applied."""

from __future__ import annotations

import json

import pytest

from omnigraph.cluster import Cluster
from omnigraph.cluster.config import GRAPH_ID_CHARACTERS_MAX, RESERVED_GRAPH_IDS, is_graph_id
from omnigraph.cluster.digests import GraphParts, config_digest, digest_of, provider_digest
from omnigraph.server import config as server_config
from omnigraph.wire import operations
from tests.cluster.conftest import CLUSTER_POLICY, PEOPLE, QUERIES, Fleet, error_codes, errors

OVERLAPPING = (
    "{ base: 's3://bkt/x', scope: server_safe }, { base: 's3://bkt/x/y', scope: server_safe }"
)


def test_c_clu_001_the_smallest_configuration_is_valid_with_digests_and_dependencies(fleet: Fleet):
    fleet.write(cluster_yaml="version: 1\ngraphs:\n  people: { schema: people.pg }\n")
    found = fleet.cluster.validate()
    assert found.ok, errors(found)
    schema = digest_of(PEOPLE.encode())
    assert found.resource_digests == {
        "graph.people": GraphParts("people", schema).digest,
        "schema.people": schema,
    }
    assert found.dependencies == ({"from": "schema.people", "to": "graph.people"},)
    assert [(each.address, each.kind) for each in found.resources] == [
        ("graph.people", "graph"),
        ("schema.people", "schema"),
    ]
    assert not (fleet.directory / "__cluster").exists()


def test_c_clu_001_dependencies_lead_from_each_resource_to_what_it_needs(fleet: Fleet):
    fleet.edit(
        "cluster.yaml", "graphs:\n", "providers: { embedding: { e: { kind: mock } } }\ngraphs:\n"
    )
    fleet.edit("cluster.yaml", "queries: queries/", "queries: queries/\n    embedding_provider: e")
    found = fleet.cluster.validate()
    assert found.ok, errors(found)
    assert {(each["from"], each["to"]) for each in found.dependencies} == {
        ("graph.people", "provider.embedding.e"),
        ("policy.base", "graph.people"),
        ("query.people.everybody", "graph.people"),
        ("query.people.everybody", "schema.people"),
        ("schema.people", "graph.people"),
        ("schema.sales", "graph.sales"),
    }


@pytest.mark.parametrize(
    ("old", "new", "code", "path", "place"),
    [
        ("version: 1", "version: 1\nverion: 2", "invalid_cluster_yaml", "verion", ":2:1"),
        (
            "schema: sales.pg",
            "schema: sales.pg, shema: x",
            "invalid_cluster_yaml",
            "graphs.sales.shema",
            ":7:30",
        ),
        ("version: 1", "version: 1\nversion: 1", "duplicate_yaml_key", "version", ":2:1"),
        ("  sales:", "  people:", "duplicate_yaml_key", "graphs.people", ":7:3"),
        ("version: 1", "version: 1\npipelines: {}", "future_phase_field", "pipelines", ":2:1"),
        ("version: 1", "version: 1\nenv_file: .env", "future_phase_field", "env_file", ":2:1"),
        (
            "schema: sales.pg",
            "schema: sales.pg, streaming: {}",
            "removed_streaming_declaration",
            "graphs.sales.streaming",
            ":7:30",
        ),
        ("version: 1", "version: 2", "unsupported_cluster_config_version", "version", ":1:1"),
        ("version: 1\n", "", "invalid_cluster_yaml", "cluster.yaml", ":1:1"),
        ("name: company", "name: ' '", "empty_metadata_name", "metadata.name", ":2:13"),
        (
            "version: 1",
            "version: 1\nstate: { backend: etcd }",
            "unsupported_state_backend",
            "state.backend",
            ":2:10",
        ),
        (
            "version: 1",
            "version: 1\nstate: { lock: yes }",
            "invalid_cluster_yaml",
            "state.lock",
            ":2:10",
        ),
        ("version: 1", "version: 1\nstorage: ftp://x/y", "invalid_storage_root", "storage", ":2:1"),
        ("  base:", "  ba.se:", "invalid_resource_id", "policies.ba.se", ":9:3"),
        ("graphs:", "graphs: [", "invalid_cluster_yaml", "cluster.yaml", ""),
    ],
)
def test_c_clu_002_keys_that_are_wrong_fail_with_their_codes(
    fleet: Fleet, old: str, new: str, code: str, path: str, place: str
):
    fleet.edit("cluster.yaml", old, new)
    found = fleet.cluster.validate()
    assert not found.ok
    problem = next(each for each in found.errors if each.code == code)
    assert problem.path == path
    assert f"cluster.yaml{place}" in problem.message


def test_every_mistake_of_a_file_is_told_at_once(fleet: Fleet):
    fleet.edit("cluster.yaml", "version: 1", "version: 1\npipelines: {}\nmistake: 1")
    fleet.edit("cluster.yaml", "schema: sales.pg", "schema: lost.pg")
    fleet.write(base_yaml="version: 1\nrule: []\n", queries__bad_gq="query x( {")
    assert error_codes(fleet.cluster.validate()) == [
        "future_phase_field",
        "invalid_cluster_yaml",
        "policy_invalid",
        "query_parse_error",
        "schema_file_missing",
    ]


@pytest.mark.parametrize(
    "graph_id", ["a_b", "graphs", "policies", "healthz", "openapi", "1st", "x" * 65]
)
def test_c_clu_003_names_of_graphs_that_cannot_be_served_are_refused(fleet: Fleet, graph_id: str):
    fleet.edit("cluster.yaml", "  sales:", f"  {graph_id}:")
    found = fleet.cluster.validate()
    assert error_codes(found) == ["invalid_resource_id"]
    assert graph_id in found.errors[0].message


def test_c_clu_003_every_valid_name_can_be_served():
    assert frozenset(operations.RESERVED_GRAPH_IDS) == RESERVED_GRAPH_IDS
    for graph_id in ("a", "no", "A-1", "x" * GRAPH_ID_CHARACTERS_MAX):
        assert is_graph_id(graph_id)
        assert server_config.is_graph_id(graph_id)


@pytest.mark.parametrize(
    "queries",
    [
        "queries/",
        "queries/people.gq",
        "[queries/people.gq]",
        "[queries/, queries/people.gq]",
        "{ everybody: { file: queries/people.gq }, names: { file: queries/people.gq } }",
    ],
)
def test_c_clu_004_every_form_of_queries_registers_the_same(fleet: Fleet, queries: str):
    names = "query names() { match { $p: Person } return { $p.name } }\n"
    fleet.write(queries__people_gq=QUERIES + names)
    fleet.edit("cluster.yaml", "queries: queries/", f"queries: {queries}")
    found = fleet.cluster.validate()
    assert found.ok, errors(found)
    digest = digest_of((QUERIES + names).encode())
    listed = {a: d for a, d in found.resource_digests.items() if a.startswith("query.")}
    assert listed == {"query.people.everybody": digest, "query.people.names": digest}


def test_c_clu_004_a_map_registers_only_what_it_names_and_its_names_must_exist(fleet: Fleet):
    fleet.edit("cluster.yaml", "queries: queries/", "queries: { all: { file: queries/people.gq } }")
    assert error_codes(fleet.cluster.validate()) == ["query_key_mismatch"]


def test_c_clu_004_an_empty_directory_is_a_warning(fleet: Fleet):
    (fleet.directory / "queries" / "people.gq").unlink()
    found = fleet.cluster.validate()
    assert found.ok
    assert "query_dir_empty" in found.codes


def test_c_clu_005_one_name_in_two_files_is_refused(fleet: Fleet):
    fleet.write(queries__more_gq=QUERIES)
    found = fleet.cluster.validate()
    assert error_codes(found) == ["duplicate_query_name"]
    assert "more.gq" in found.errors[0].message
    assert "people.gq" in found.errors[0].message


def test_c_clu_006_a_query_that_does_not_fit_its_schema_fails_validate_and_import(fleet: Fleet):
    fleet.write(queries__people_gq="query wrong() { match { $p: Persn } return { $p.name } }")
    for found in (fleet.cluster.validate(), fleet.cluster.import_()):
        assert error_codes(found) == ["query_typecheck_error"]
        assert found.errors[0].path == "query.people.wrong"
        assert "people.gq:1:" in found.errors[0].message
    assert not fleet.state.exists()


def test_c_clu_006_queries_of_a_schema_that_does_not_compile_are_only_warned_about(fleet: Fleet):
    fleet.write(people_pg="node Person {")
    found = fleet.cluster.validate()
    assert error_codes(found) == ["schema_parse_error"]
    assert "query_typecheck_skipped" in found.codes


@pytest.mark.parametrize(
    ("applies_to", "code"),
    [
        ("applies_to: [cluster, people]", "policy_mixed_binding_kinds"),
        ("applies_to: []", "policy_missing_applies_to"),
        ("", "policy_missing_applies_to"),
        ("applies_to: [peple]", "dangling_graph_reference"),
        ("applies_to: [schema.people]", "wrong_kind_reference"),
        ("applies_to: [graph.people.x]", "wrong_kind_reference"),
    ],
)
def test_c_clu_007_bindings_that_mean_nothing_are_refused(fleet: Fleet, applies_to: str, code: str):
    fleet.edit("cluster.yaml", ", applies_to: [people]", f", {applies_to}")
    assert code in error_codes(fleet.cluster.validate())


def test_c_clu_007_a_scope_has_one_policy(fleet: Fleet):
    second = "policies:\n  other: { file: base.yaml, applies_to: [graph.people] }\n"
    fleet.edit("cluster.yaml", "policies:\n", second)
    found = fleet.cluster.validate()
    assert error_codes(found) == ["duplicate_policy_binding"]
    assert "graph.people" in found.errors[0].message


def test_c_clu_007_the_kind_of_a_bundle_is_that_of_its_binding(fleet: Fleet):
    fleet.write(base_yaml=CLUSTER_POLICY)
    assert error_codes(fleet.cluster.validate()) == ["policy_invalid"]
    fleet.edit("cluster.yaml", "applies_to: [people]", "applies_to: [cluster]")
    assert fleet.cluster.validate().ok


@pytest.mark.parametrize(
    ("provider", "codes"),
    [
        ("{ api_key: sk-123 }", ["embedding_api_key_inline"]),
        ("{ kind: openai }", ["embedding_api_key_required"]),
        ("{ kind: mock }", []),
        ("{ provider: gemini, api_key: '${NOT_SET_ANYWHERE}' }", []),
        ("{ kind: other, api_key: '${KEY}' }", ["invalid_embedding_provider"]),
        ("{ base_url: nowhere, api_key: '${KEY}' }", ["invalid_embedding_provider"]),
    ],
)
def test_c_clu_008_secrets_are_named_and_not_needed_to_validate(
    fleet: Fleet, provider: str, codes: list[str]
):
    fleet.edit(
        "cluster.yaml", "graphs:\n", f"providers:\n  embedding:\n    e: {provider}\ngraphs:\n"
    )
    found = fleet.cluster.validate()
    assert error_codes(found) == codes
    assert "sk-123" not in json.dumps(found.to_dict())


@pytest.mark.parametrize(
    ("bound", "code"),
    [("none", "dangling_embedding_provider_reference"), ("graph.sales", "wrong_kind_reference")],
)
def test_c_clu_008_a_provider_that_is_not_declared_is_refused(fleet: Fleet, bound: str, code: str):
    fleet.edit("cluster.yaml", "schema: sales.pg", f"schema: sales.pg, embedding_provider: {bound}")
    assert error_codes(fleet.cluster.validate()) == [code]


@pytest.mark.parametrize(
    ("bases", "code"),
    [
        ("{ base: 's3://bkt/x', scope: anyone }", "invalid_external_blob_policy"),
        (
            OVERLAPPING,
            "invalid_external_blob_policy",
        ),
        ("{ base: 's3://bkt/a/../c', scope: server_safe }", "invalid_external_blob_base"),
        ("{ base: 's3://bkt/%2e%2e/c', scope: server_safe }", "invalid_external_blob_base"),
        ("{ base: 's3://user:secret@bkt/c', scope: server_safe }", "invalid_external_blob_base"),
        ("{ base: 's3://bkt/c?sig=1', scope: server_safe }", "invalid_external_blob_base"),
        ("{ base: ' s3://bkt/c', scope: server_safe }", "invalid_external_blob_base"),
        ("{ base: 'file:///tmp', scope: server_safe }", "invalid_external_blob_base"),
        ("{ base: 'file:///nowhere/at/all', scope: embedded_only }", "invalid_external_blob_base"),
    ],
)
def test_c_clu_009_unsafe_folders_of_external_blobs_are_refused(
    fleet: Fleet, bases: str, code: str
):
    blobs = f"external_blobs: {{ allow: [{bases}] }}"
    fleet.edit("cluster.yaml", "schema: sales.pg", f"schema: sales.pg, {blobs}")
    found = fleet.cluster.validate()
    assert error_codes(found) == [code]
    assert "secret" not in found.errors[0].message


def test_c_clu_009_no_folders_deny_and_are_warned_about(fleet: Fleet):
    fleet.edit(
        "cluster.yaml", "schema: sales.pg", "schema: sales.pg, external_blobs: { allow: [] }"
    )
    found = fleet.cluster.validate()
    warned = [each.path for each in found.diagnostics if each.code.endswith("default_deny")]
    assert warned == ["graphs.people.external_blobs", "graphs.sales.external_blobs"]
    safe = "external_blobs: { allow: [{ base: 's3://assets/sales/', scope: server_safe }] }"
    fleet.edit("cluster.yaml", "external_blobs: { allow: [] }", safe)
    after = fleet.cluster.validate()
    assert after.ok
    assert len([code for code in after.codes if code.endswith("default_deny")]) == 1
    assert after.resource_digests["graph.sales"] != found.resource_digests["graph.sales"]


def test_c_clu_010_comments_and_layout_leave_the_digest_as_it_is(fleet: Fleet):
    def digest() -> str | None:
        return fleet.cluster.plan().desired_revision.config_digest

    before = digest()
    fleet.edit(
        "cluster.yaml",
        "  sales: { schema: sales.pg }",
        "  # of 2026\n  sales:\n    schema: 'sales.pg'",
    )
    assert digest() == before
    fleet.edit("sales.pg", "F64?", "F64? @index")
    assert digest() != before


def test_digests_have_the_layout_that_is_specified():
    schema, query = "a" * 64, "b" * 64
    parts = GraphParts(
        "g",
        schema,
        [("q", query)],
        ("provider.embedding.e", "c" * 64),
        [("s3://bkt/x", "server_safe")],
    )
    text = (
        f"graph\0g\0schema\0{schema}\0query\0q\0{query}\0"
        f"embedding_provider\0provider.embedding.e\0{'c' * 64}\0"
        'external_blob_policy\0{"mode":"allow","bases":[{"uri":"s3://bkt/x","scope":"server_safe"}]}\0'
    )
    assert parts.digest == digest_of(text.encode())
    members = {"kind": "openai", "model": "m", "api_key": "${KEY}"}
    expected = b'embedding-provider\0{"kind":"openai","model":"m","api_key":"${KEY}"}'
    assert provider_digest(members) == digest_of(expected)
    assert config_digest({"b": 1, "a": 2}, {}) == config_digest({"a": 2, "b": 1}, {})


def test_checks_name_stored_queries_of_their_graph(fleet: Fleet):
    fleet.write(checks_yaml="checks: [{ name: some, query: everybody, expect: nonempty }]\n")
    fleet.edit("cluster.yaml", "queries: queries/", "queries: queries/\n    checks: checks.yaml")
    found = fleet.cluster.validate()
    assert found.ok, errors(found)
    assert "checks.people" in found.resource_digests
    fleet.edit("checks.yaml", "everybody", "nobody")
    assert error_codes(fleet.cluster.validate()) == ["checks_invalid"]


def test_a_directory_that_is_not_there_is_told(fleet: Fleet):
    found = Cluster(fleet.directory / "elsewhere").validate()
    assert error_codes(found) == ["config_dir_not_found"]
    (fleet.directory / "cluster.yaml").unlink()
    assert error_codes(fleet.cluster.validate()) == ["cluster_config_read_error"]
