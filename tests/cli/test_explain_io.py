"""`--explain-io`: what a command asked of storage."""

from __future__ import annotations

import pytest

READ = "query all() { match { $p: Person } return { $p.name } }"


@pytest.mark.parametrize(
    "command",
    [
        ["query", "-e", READ, "--store", "{graph}"],
        ["mutate", "-e", 'query add() { insert Person { name: "io" } }', "--store", "{graph}"],
        ["commit", "list", "--store", "{graph}"],
        ["optimize", "--store", "{graph}"],
        ["branch", "create", "io", "--store", "{graph}"],
        ["query", "-e", READ, "--store", "missing.omni"],
    ],
    ids=lambda command: " ".join(command[:2]),
)
def test_c_ver_007_every_command_shows_its_requests_and_serial_hops(
    run, full_graph: str, command: list[str]
):
    words = [word.format(graph=full_graph) if word == "{graph}" else word for word in command]
    done = run(*words, "--explain-io")
    counts = {
        name.strip(): int(n)
        for line in done.err.splitlines()
        for name, _, n in [line.rpartition("  ")]
        if n.strip().isdigit()
    }
    assert counts["requests"] > 0
    assert 0 < counts["serial round trips"] <= counts["requests"]
    assert "serial round trips" not in done.out
