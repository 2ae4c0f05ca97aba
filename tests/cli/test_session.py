"""One session from an empty folder to a copy of a graph."""

from __future__ import annotations

import json
from pathlib import Path

SCHEMA = "examples/social/schema.pg"
DATA = "examples/social/data.jsonl"
MUTATIONS = "examples/social/mutations.gq"


def test_a_session_ends_with_two_equal_graphs(run, tmp_path: Path):
    graph, copy = str(tmp_path / "social.omni"), str(tmp_path / "copy.omni")

    def succeed(*arguments: object) -> str:
        done = run(*arguments)
        assert done.code == 0, done.err
        return str(done.out)

    succeed("init", "--schema", SCHEMA, graph)
    succeed("load", graph, "--data", DATA, "--mode", "append", "--as", "act-ana")
    sign_up = ["sign_up", "--query", MUTATIONS, "--params", '{"handle": "zoe", "name": "Zoe"}']
    succeed("mutate", *sign_up, "--store", graph, "--as", "act-bo")
    succeed("branch", "create", "review", "--uri", graph)
    more = tmp_path / "more.jsonl"
    more.write_text(
        '{"type": "Post", "data": {"slug": "h", "text": "", "created": "2026-01-02T03:04:05Z"}}\n'
        '{"edge": "WrittenBy", "from": "h", "to": "zoe", "data": {"id": "w1"}}\n'
    )
    succeed("load", graph, "--data", more, "--mode", "merge", "--branch", "review")

    history = json.loads(succeed("commit", "list", graph, "--branch", "review", "--json"))
    assert [(c["graph_branch"], c["actor_id"]) for c in history["commits"]] == [
        ("review", None),
        (None, "act-bo"),
        (None, "act-ana"),
        (None, None),
    ]
    assert "37 entities on main" in succeed("snapshot", graph)
    assert "39 entities on review" in succeed("snapshot", graph, "--branch", "review")

    exported = tmp_path / "review.jsonl"
    succeed("export", graph, "--branch", "review", "--out", exported)
    schema = tmp_path / "schema.pg"
    schema.write_text(succeed("schema", "show", graph))
    succeed("init", "--schema", schema, copy)
    succeed("load", copy, "--data", exported, "--mode", "overwrite")
    assert succeed("export", copy) == exported.read_text() != succeed("export", graph)
