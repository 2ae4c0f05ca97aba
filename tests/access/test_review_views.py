"""Change requests as an actor sees them whose rules show a part of the branches."""

from __future__ import annotations

from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.errors import NotFound, OmnigraphError, PolicyDenied
from omnigraph.graph import Graph, open_graph
from omnigraph.policy import load_policy

SCHEMA = """
node Note { slug: String @key  text: String?  author: String?  grade: I32? }
node Secret { name: String @key }
"""
BUNDLE = """\
version: 2
groups: {agents: [act-ana], all: [act-bo]}
rules:
  - id: agents-read
    allow: {actors: {group: agents}, actions: [read, export], branch_scope: any}
    types: {Note: {properties: [slug, text, author], where: '$row.author = $actor.id'}}
  - id: all
    allow: {actors: {group: all}, actions: [read, export, change, check_report], branch_scope: any}
"""
CHECKS = """
checks:
  - { name: no_secrets, query: secrets, expect: empty }
"""


@pytest.fixture
def whole(tmp_path: Path) -> Graph:
    graph = og.init(tmp_path / "graph.omni", SCHEMA)
    graph.mutate(
        'query w { insert Note { slug: "mine", author: "act-ana" } '
        'insert Note { slug: "theirs", author: "act-bo" } insert Secret { name: "hush" } }'
    )
    graph.create_branch("work")
    for branch in ("work", "main"):
        graph.mutate(
            f'query w {{ update Note set {{ text: "{branch}" }} where slug != "" }}',
            branch=branch,
        )
        graph.mutate(f'query w {{ insert Secret {{ name: "hush-{branch}" }} }}', branch=branch)
    return graph


def test_c_acc_003_a_request_shows_nothing_of_what_is_hidden(whole: Graph, tmp_path: Path):
    (tmp_path / "checks.yaml").write_text(CHECKS)
    (tmp_path / "secrets.gq").write_text(
        "query secrets { match { $s: Secret } return { $s.name } }"
    )
    opened = whole.reviews.open("work", title="work")
    whole.reviews.check(opened.id, checks=tmp_path)
    said: tuple[dict[str, str], ...] = (
        {},
        {"type_name": "Note"},
        {"type_name": "Note", "entity_id": "mine"},
        {"type_name": "Note", "property_name": "text"},
        {"type_name": "Note", "entity_id": "theirs"},
        {"type_name": "Note", "property_name": "grade"},
        {"type_name": "Secret"},
        {"type_name": "Secret", "entity_id": "hush"},
    )
    for number, place in enumerate(said):
        whole.reviews.comment(opened.id, f"said {number}", **place)
    hidden = whole.reviews.get(opened.id).comments[-1]
    whole.reviews.comment(opened.id, "an answer", reply_to=hidden.id)

    everything = whole.reviews.get(opened.id)
    (check,) = everything.checks
    assert check.state == "failed" and "2 rows" in (check.text or "") and len(check.rows) == 2
    assert sum(each.code == "conflicts" for each in everything.reasons) == 2
    guarded = open_graph(whole.uri, policy=load_policy(BUNDLE))
    assert guarded.acting_as("act-bo").reviews.get(opened.id) == everything

    ana = guarded.acting_as("act-ana")
    seen = ana.reviews.get(opened.id)
    (check,) = seen.checks
    assert (check.name, check.state, check.text, check.rows) == ("no_secrets", "failed", None, ())
    assert [each.text for each in seen.comments] == [f"said {number}" for number in range(4)]
    conflicts = [each.text for each in seen.reasons if each.code == "conflicts"]
    assert len(conflicts) == 2
    assert "mine" in conflicts[0] and "something that you do not see" in conflicts[1]
    for word in ("theirs", "hush", "Secret", "grade"):
        assert word not in repr(seen) and word not in str(seen.to_dict())
    with pytest.raises(PolicyDenied, match="shows all of branch"):
        list(ana.reviews.export())


def test_c_acc_003_a_comment_on_a_hidden_type_is_one_on_an_unknown_type(whole: Graph):
    opened = whole.reviews.open("work", title="work")
    ana = open_graph(whole.uri, policy=load_policy(BUNDLE)).acting_as("act-ana")

    def told(name: str, property_name: str | None = None) -> str:
        with pytest.raises(OmnigraphError) as refused:
            ana.reviews.comment(opened.id, "x", type_name=name, property_name=property_name)
        assert isinstance(refused.value, NotFound)
        return refused.value.render().replace(property_name or name, "it")

    assert told("Secret") == told("Absent")
    assert told("Note", "grade") == told("Note", "zzzzz")
    assert ana.reviews.comment(opened.id, "fine", type_name="Note").comments[-1].text == "fine"
