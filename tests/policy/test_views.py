"""Bundles of version 2: types, properties, rows, branches and claims, and the views they give."""

from __future__ import annotations

from itertools import combinations

import pytest

from omnigraph.errors import PolicyInvalid
from omnigraph.policy import Action, Identity, Policy, load_policy
from omnigraph.schema.catalog import Catalog
from omnigraph.schema.compile import compile_schema

SCHEMA = """
interface Named { name: String }
node Person implements Named {
  slug: String @key
  region: String?
  salary: I64?
  roles: [String]?
}
node Company implements Named { slug: String @key secret: String? }
node Note { slug: String @key author: String? text: String? }
edge WorksAt: Person -> Company { since: I64? }
edge About: Note -> Named
"""

HEAD = """\
version: 2
groups:
  analysts: [act-ana]
  agents: {claim: roles, value: agent}
rules:
"""

BUNDLE = (
    HEAD
    + """\
  - id: analysts-read
    allow: {actors: {group: analysts}, actions: [read, export], branch_scope: any}
    types:
      Person: {properties: [slug, name, region], where: "$row.region = $actor.region"}
      Company: all
      WorksAt: all
      About: all
  - id: agents-write
    allow: {actors: {group: agents}, actions: [change], branches: ["agent/*", "drafts"]}
    types: {Note: {where: "$row.author = $actor.id"}}
  - id: agents-read
    allow: {actors: {group: agents}, actions: [read]}
    types: {Note: all}
"""
)


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return compile_schema(SCHEMA).catalog


def one_rule(types: str, actions: str = "[read]") -> str:
    """A bundle with one rule for one group."""
    return (
        f"{HEAD}  - id: r\n    allow: {{actors: {{group: analysts}}, actions: {actions}}}\n{types}"
    )


def test_c_acc_001_version_1_knows_none_of_the_new_words():
    for old, new in (
        ("analysts: [act-ana]", "analysts: {claim: a, value: b}"),
        ("actions: [read]", "actions: [maintain]"),
        ("actions: [read]", "actions: [read], branches: [main]"),
        ("{id: r,", "{id: r, types: {Person: all},"),
    ):
        text = (
            "version: 1\ngroups: {analysts: [act-ana]}\n"
            "rules:\n  - {id: r, allow: {actors: {group: analysts}, actions: [read]}}\n"
        )
        load_policy(text)
        assert old in text
        with pytest.raises(PolicyInvalid):
            load_policy(text.replace(old, new))
        load_policy(text.replace(old, new).replace("version: 1", "version: 2"))


@pytest.mark.parametrize(
    ("types", "place", "words", "hint"),
    [
        ("{Persn: all}", "8:13", "there is no type `Persn`", "Person"),
        ("{Named: all}", "8:13", "there is no type `Named`", "interface"),
        ("{Person: {properties: [slug, nam]}}", "8:41", "Person has no property `nam`", "name"),
        ("{Person: {properties: [name]}}", "8:13", "leaves out `slug`", "slug"),
        ("{Person: {where: '$row.regin = \"eu\"'}}", "8:22", "at 1:6: ", "region"),
        ('{Person: {where: "$row.region = $actr.id"}}', "8:22", "`$actr` is not bound", None),
        ('{Person: {where: "$row.salary = $actor.id"}}', "8:22", "cannot", None),
        ('{Person: {where: "$row.region ="}}', "8:22", "at 1:", None),
        ('{Person: {where: "$row.salary > count($row)"}}', "8:22", "", None),
        ("{Person: {where: 'search($row.name, \"x\")'}}", "8:22", "a search cannot", None),
        ('{Person: {where: "$row.salary = 1 and now() > now()"}}', "8:22", "`now()`", None),
        ("{Person: some}", "8:13", "must be `all` or a mapping", None),
        ("{Person: {propertys: [slug]}}", "8:22", "unknown key", "properties"),
    ],
)
def test_c_acc_002_a_name_or_condition_that_does_not_fit_is_refused_with_its_place(
    catalog: Catalog, types: str, place: str, words: str, hint: str | None
):
    with pytest.raises(PolicyInvalid) as caught:
        load_policy(one_rule(f"    types: {types}\n")).check_names(catalog)
    assert f"<text>:{place}: " in caught.value.message
    assert words in caught.value.message
    assert hint is None or hint in (caught.value.hint or "")


def test_c_acc_002_rules_that_cannot_be_added_up_are_refused(catalog: Catalog):
    text = BUNDLE + (
        "  - id: more\n    allow: {actors: {group: analysts}, actions: [read]}\n"
        "    types: {Person: {properties: [slug, salary], where: '$row.name = \"Ana\"'}}\n"
    )
    with pytest.raises(PolicyInvalid, match="different properties of Person on different rows"):
        load_policy(text).check_names(catalog)
    # The same properties, or the same rows, can be added up.
    load_policy(text.replace("[slug, salary]", "[slug, name, region]")).check_names(catalog)
    load_policy(text.replace('$row.name = "Ana"', "$row.region = $actor.region")).check_names(
        catalog
    )


@pytest.mark.parametrize("limit", ["branches: []", 'branches: ["a*"]', 'branches: ["/*"]'])
def test_patterns_of_branches_are_names_and_prefixes(limit: str):
    text = one_rule("").replace("actions: [read]", f"actions: [read], {limit}")
    with pytest.raises(PolicyInvalid, match="rule `r`"):
        load_policy(text)


def test_branches_limit_a_rule_by_name_and_prefix():
    policy = load_policy(BUNDLE)
    agent = Identity.of("act-x", {"roles": ["agent", "other"]})
    allowed = {
        branch: policy.decide(agent, "change", branch=branch).allowed
        for branch in ("agent/a", "agent/a/b", "agent", "agents/a", "drafts", "main")
    }
    assert allowed == {
        "agent/a": True,
        "agent/a/b": True,
        "agent": False,
        "agents/a": False,
        "drafts": True,
        "main": False,
    }
    assert not policy.decide(agent, "change").allowed
    for claims in ({}, {"roles": "reader"}, {"roles": ["agents"]}, {"role": "agent"}):
        other = Identity.of("act-x", claims)
        assert not policy.decide(other, "change", branch="drafts").allowed


def view_of(policy: Policy, catalog: Catalog, identity: Identity, **asked: object):
    found = policy.view(identity, catalog, **asked)  # type: ignore[arg-type]
    assert found is not None
    return found


def test_a_view_has_the_types_properties_and_conditions_of_the_rules(catalog: Catalog):
    policy = load_policy(BUNDLE)
    policy.check_names(catalog)
    ana = Identity.of("act-ana", {"region": "eu"})
    view = view_of(policy, catalog, ana)
    # `About` is granted, but not the notes that it begins at.
    assert list(view.types) == ["node:Company", "node:Person", "edge:WorksAt"]
    assert list(view.catalog.nodes["Person"].properties) == ["name", "region", "slug"]
    assert [row.text for row in view.conditions("node:Person") or ()] == [
        "$row.region = $actor.region"
    ]
    assert view.conditions("node:Company") is None
    # Edges depend on the persons at their ends.
    assert view.restricts("edge:WorksAt") and not view.restricts("node:Company")
    assert policy.view(ana, catalog) is view
    # Without the claim that a condition reads, it grants no row.
    assert view_of(policy, catalog, Identity("act-ana")).conditions("node:Person") == ()
    wrong = Identity.of("act-ana", {"region": 7})
    assert view_of(policy, catalog, wrong).conditions("node:Person") == ()


def test_rules_without_types_show_everything(catalog: Catalog):
    text = BUNDLE + (
        "  - id: all\n    allow: {actors: {group: analysts}, actions: [read], branches: [open]}\n"
    )
    policy = load_policy(text)
    ana = Identity.of("act-ana", {"region": "eu"})
    assert policy.view(ana, catalog, branch="open") is None
    assert policy.view(ana, catalog, branch="main") is not None
    assert policy.view(ana, catalog, action=Action.EXPORT, branch="open") is not None
    # Where nothing is granted, nothing is seen.
    assert view_of(policy, catalog, Identity("act-eve")).types == {}


def test_an_edge_type_is_seen_with_its_ends_and_an_interface_with_its_properties(catalog: Catalog):
    everything = [*catalog.nodes, *catalog.edges]
    for count in range(len(everything) + 1):
        for names in combinations(everything, count):
            granted = ", ".join(f"{name}: all" for name in names)
            policy = load_policy(one_rule(f"    types: {{{granted}}}\n"))
            shown = view_of(policy, catalog, Identity("act-ana")).catalog
            assert set(shown.nodes) == set(names) & catalog.nodes.keys()
            assert ("WorksAt" in shown.edges) == {"WorksAt", "Person", "Company"}.issubset(names)
            named = bool({"Person", "Company"} & set(names))
            assert ("Named" in shown.interfaces) == named
            assert ("About" in shown.edges) == ({"About", "Note"}.issubset(names) and named)
    nameless = load_policy(one_rule("    types: {Person: {properties: [slug]}}\n"))
    shown = view_of(nameless, catalog, Identity("act-ana")).catalog
    assert shown.nodes["Person"].implements == () and not shown.interfaces
