"""Bundles: what is read, what is refused, and that a refusal names the cause."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.errors import PolicyInvalid
from omnigraph.policy import Action, BranchProtection, Bundle, PolicyKind, parse_bundle

EXAMPLES = Path(__file__).parents[2] / "examples" / "policy"

BUNDLE = """\
version: 1
groups:
  team: [act-ana, act-bo]
  admins: [act-ana]
protected_branches: [main]
rules:
  - id: team-read
    allow:
      actors: { group: team }
      actions: [read, export]
      branch_scope: any
  - id: admins-merge
    allow:
      actors: { group: admins }
      actions: [branch_merge, branch_delete]
      target_branch_scope: protected
"""


def with_rule(actions: str, *more: str, rule_id: str = "r", group: str = "team") -> str:
    """A bundle of one rule; ``more`` are further keys of its `allow`."""
    lines = [f"actors: {{ group: {group} }}", f"actions: {actions}", *more]
    allow = "".join(f"      {line}\n" for line in lines)
    head = "version: 1\ngroups:\n  team: [act-ana, act-bo]\nrules:\n"
    return f"{head}  - id: {rule_id}\n    allow:\n{allow}"


def refused(text: str, *words: str, kind: PolicyKind | None = None) -> PolicyInvalid:
    """The error for a bundle; its message has all ``words``."""
    with pytest.raises(PolicyInvalid) as caught:
        parse_bundle(text, kind=kind)
    for word in words:
        assert word in caught.value.message
    return caught.value


def test_a_bundle_is_read_as_it_is_written():
    bundle = parse_bundle(BUNDLE)
    assert bundle.kind == "graph"
    assert bundle.groups == {"team": ("act-ana", "act-bo"), "admins": ("act-ana",)}
    assert bundle.protected_branches == {"main"}
    assert bundle.actors == {"act-ana", "act-bo"}
    first, second = bundle.rules
    assert (first.id, first.group, first.actions) == (
        "team-read",
        "team",
        (Action.READ, Action.EXPORT),
    )
    assert (first.branch_scope, first.target_branch_scope) == (BranchProtection.ANY, None)
    assert (second.branch_scope, second.target_branch_scope) == (None, BranchProtection.PROTECTED)


@pytest.mark.parametrize("name", ["team.yaml", "operators.yaml"])
def test_the_examples_are_bundles(name: str):
    assert parse_bundle(EXAMPLES / name).rules


def test_a_file_is_named_in_its_errors(tmp_path: Path):
    path = tmp_path / "policy.yaml"
    path.write_text("version: 1\ngroups: {team: []}\n", encoding="utf-8")
    with pytest.raises(PolicyInvalid, match=r"policy\.yaml:2:10: group `team` has no members"):
        parse_bundle(path)


@pytest.mark.parametrize("data", [b"\xff\xfev", b"version: 1\n# \xe9\n"])
def test_a_file_that_is_not_utf8_is_refused(tmp_path: Path, data: bytes):
    path = tmp_path / "policy.yaml"
    path.write_bytes(data)
    with pytest.raises(PolicyInvalid, match="is not UTF-8"):
        parse_bundle(path)


def test_an_absent_file_is_an_error_of_the_system(tmp_path: Path):
    with pytest.raises(FileNotFoundError):
        parse_bundle(tmp_path / "none.yaml")


def test_a_byte_order_mark_is_no_character(tmp_path: Path):
    path = tmp_path / "policy.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + BUNDLE.encode())
    assert len(parse_bundle(path).rules) == 2


# --- strict parsing -------------------------------------------------------------------------------


def test_c_pol_001_an_unknown_key_fails_and_is_named():
    error = refused(BUNDLE + "grups: {}\n", "<text>:17:1", "unknown key `grups`")
    assert error.hint == "did you mean `groups`?"


def test_c_pol_001_unknown_keys_fail_at_every_level():
    refused(BUNDLE.replace("    allow:", "    note: x\n    allow:"), "`rules[0].note`")
    refused(with_rule("[read]", "deny: true"), "`rules[0].allow.deny`")
    refused(BUNDLE.replace("{ group: team }", "{ group: team, user: x }"), "actors.user")
    refused("version: 1\n<<: {}\n", "unknown key `<<`")


def test_c_pol_002_a_misspelt_scope_key_fails():
    text = with_rule("[change]", "branch_scpoe: unprotected")
    error = refused(text, "unknown key `rules[0].allow.branch_scpoe`")
    assert error.hint == "did you mean `branch_scope`?"


@pytest.mark.parametrize("key", ["version", "groups.team", "rules[0].allow.actions"])
def test_c_pol_003_a_duplicate_key_fails(key: str):
    text = {
        "version": BUNDLE + "version: 1\n",
        "groups.team": BUNDLE.replace("  admins:", "  team: [x]\n  admins:"),
        "rules[0].allow.actions": with_rule("[read]", "actions: [read]"),
    }[key]
    refused(text, f"duplicate key `{key}`")


@pytest.mark.parametrize("version", ["3", "0", "'1'", "1.0", "true", "[1]", "~", "one", "9" * 9999])
def test_c_pol_004_another_version_fails(version: str):
    refused(f"version: {version}\n", "`version` must be the integer 1 or 2")


def test_c_pol_004_a_version_is_needed():
    refused("groups: {}\n", "the document needs the key `version`")
    refused("", "the document must be a mapping, not nothing")


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("[act-ana, act-bo]", "[]", "group `team` has no members"),
        ("[act-ana, act-bo]", "['']", "`groups.team[0]` is blank"),
        ("[act-ana, act-bo]", "[x, '  ']", "`groups.team[1]` is blank"),
        ("team: [act", "' ': [act", "a group has a blank name"),
        ("[main]", '["\\t"]', "`protected_branches[0]` is blank"),
        ("id: team-read", "id: ' '", "`rules[0].id` is blank"),
    ],
)
def test_c_pol_005_blank_and_empty_names_fail(old: str, new: str, words: str):
    refused(BUNDLE.replace(old, new, 1), words)


def test_c_pol_006_a_duplicate_rule_id_fails():
    error = refused(BUNDLE.replace("admins-merge", "team-read"), "rule `team-read`", "another rule")
    assert error.hint == "the other one is at <text>:7:5"


def test_c_pol_007_an_unknown_group_fails():
    text = with_rule("[read]", group="taem")
    error = refused(text, "rule `r`", "there is no group `taem`")
    assert error.hint == "did you mean `team`?"


def test_c_pol_008_no_actions_and_unknown_actions_fail():
    refused(with_rule("[]"), "rule `r`", "`actions` is empty")
    error = refused(with_rule("[read, raed]"), "rule `r`", "there is no action `raed`")
    assert error.hint == "did you mean `read`?"
    refused(with_rule("[READ]"), "there is no action `READ`")


# --- scopes and kinds -----------------------------------------------------------------------------


def test_c_pol_009_both_scopes_on_a_rule_fail():
    for action in ("read", "branch_merge"):
        text = with_rule(f"[{action}]", "branch_scope: any", "target_branch_scope: any")
        refused(text, "rule `r`", "`branch_scope` and `target_branch_scope` exclude each other")


@pytest.mark.parametrize("action", ["branch_merge", "invoke_query", "admin", "schema_apply"])
def test_c_pol_010_a_branch_scope_fails_with_other_actions(action: str):
    # One unsuitable action among suitable ones is enough.
    text = with_rule(f"[change, {action}]", "branch_scope: any")
    refused(text, "rule `r`", f"`branch_scope` does not go with `{action}`")


@pytest.mark.parametrize("action", ["read", "export", "change", "admin", "invoke_query"])
def test_c_pol_011_a_target_scope_fails_with_other_actions(action: str):
    text = with_rule(f"[branch_merge, {action}]", "target_branch_scope: any")
    refused(text, "rule `r`", f"`target_branch_scope` does not go with `{action}`")


@pytest.mark.parametrize("key", ["branch_scope", "target_branch_scope"])
def test_c_pol_012_a_scope_fails_with_graph_list(key: str):
    text = with_rule("[graph_list]", f"{key}: any")
    error = refused(text, "rule `r`", f"`{key}` does not go with `graph_list`")
    assert error.hint == "`graph_list` takes no scope"


def test_c_pol_013_graph_list_beside_other_actions_fails():
    refused(with_rule("[read, graph_list]"), "rule `r`", "`graph_list` cannot stand beside")


def test_c_pol_014_graph_list_fails_in_the_bundle_of_a_graph():
    words = "`graph_list` belongs in the bundle of a server"
    refused(with_rule("[graph_list]"), "rule `r`", words, kind="graph")


def test_c_pol_015_graph_actions_fail_in_the_bundle_of_a_server():
    words = "`read` belongs in the bundle of a graph"
    refused(with_rule("[read]"), "rule `r`", words, kind="server")


def test_c_pol_016_the_declared_kind_must_agree():
    reads, lists = with_rule("[read]"), with_rule("[graph_list]")
    assert parse_bundle("kind: graph\n" + reads, kind="graph").kind == "graph"
    assert parse_bundle("kind: server\n" + lists, kind="server").kind == "server"
    refused("kind: server\n" + lists, "it is bound to a graph", kind="graph")
    refused("kind: graph\n" + lists, "`graph_list` belongs in the bundle of a server")
    refused("kind: server\n" + reads, "`read` belongs in the bundle of a graph")
    refused("kind: cluster\n" + reads, "`kind` must be graph or server, not `cluster`")


def test_without_a_binding_the_kind_is_inferred():
    assert parse_bundle(with_rule("[graph_list]")).kind == "server"
    assert parse_bundle(with_rule("[admin]")).kind == "graph"
    assert parse_bundle("version: 1\n").kind == "graph"
    assert parse_bundle("version: 1\n", kind="server").kind == "server"
    assert parse_bundle("version: 1\nkind: server\n").kind == "server"


def test_a_bundle_that_mixes_kinds_is_refused_by_the_rule_that_does():
    text = with_rule("[read]") + with_rule("[graph_list]", rule_id="lists").partition("rules:\n")[2]
    refused(text, "rule `lists`", "`graph_list`")


def test_an_unknown_scope_fails():
    error = refused(with_rule("[read]", "branch_scope: protcted"), "cannot be `protcted`")
    assert error.hint == "did you mean `protected`?"


# --- scalars --------------------------------------------------------------------------------------


@pytest.mark.parametrize("word", ["no", "on", "off", "yes", "y", "True", "FALSE", "2024-05-01"])
def test_c_pol_017_only_true_and_false_are_booleans(word: str):
    for prefix in ("", "%YAML 1.1\n---\n"):
        bundle = parse_bundle(f"{prefix}version: 1\ngroups: {{{word}: [{word}]}}\n")
        assert bundle.groups == {word: (word,)}


@pytest.mark.parametrize(
    ("spelling", "kind"),
    [
        ("5", "an integer (`5`)"),
        ("0x1f", "an integer (`0x1f`)"),
        ("-7", "an integer (`-7`)"),
        ("1.5e3", "a number (`1.5e3`)"),
        (".inf", "a number (`.inf`)"),
        ("true", "a boolean (`true`)"),
        ("null", "nothing"),
        ("~", "nothing"),
        ("[a]", "a list"),
        ("{a: b}", "a mapping"),
    ],
)
def test_what_is_no_text_is_refused_where_a_text_belongs(spelling: str, kind: str):
    error = refused(f"version: 1\ngroups: {{team: [{spelling}]}}\n", f"must be a text, not {kind}")
    is_scalar = not spelling.startswith(("[", "{"))
    assert error.hint == ("put it in quotes to make it a text" if is_scalar else None)


def test_quoted_numbers_are_texts():
    assert parse_bundle("version: 1\ngroups: {'7': ['5', \"6\"]}").groups == {"7": ("5", "6")}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("version: 1\ngroups: [team]\n", "`groups` must be a mapping, not a list"),
        ("version: 1\ngroups: {team: act-ana}\n", "`groups.team` must be a list, not a text"),
        ("version: 1\nrules: {}\n", "`rules` must be a list, not a mapping"),
        ("version: 1\nrules:\n", "`rules` must be a list, not nothing"),
        ("version: 1\nrules: [r]\n", "`rules[0]` must be a mapping, not a text"),
        ("version: 1\ngroups: {5: [x]}\n", "a key of `groups` is an integer (`5`), not a text"),
        ("version: 1\ngroups: {? [a] : [x]}\n", "a key of `groups` is a list, not a text"),
        ("version: 1\ngroups: {a: &m [x], b: *m}\n", "`groups.b` is an alias"),
        ("version: 1\ngroups: {a: [!!str 5]}\n", "has the tag `tag:yaml.org,2002:str`"),
        ("version: 1\n---\nversion: 1\n", "<text>:2:1: a second document"),
        ('version: 1\ngroups: {a: ["\\ud800"]}\n', "half of a surrogate pair"),
        ("[" * 40, "nested more than 32 levels deep"),
        ("policy.yaml", "the document must be a mapping, not a text"),
        ("version: 1\ngroups: {a: [x]", "<text>:2:1"),
    ],
)
def test_other_yaml_is_refused_where_it_stands(text: str, words: str):
    refused(text, words)


def parsed(text: str) -> Bundle | PolicyInvalid:
    try:
        return parse_bundle(text)
    except PolicyInvalid as error:
        return error


@given(st.text())
def test_any_text_is_a_bundle_or_refused_as_one(text: str):
    assert isinstance(parsed(text), PolicyInvalid)


@given(st.data())
def test_a_damaged_bundle_is_read_or_refused(data: st.DataObject):
    start = data.draw(st.integers(0, len(BUNDLE)))
    end = data.draw(st.integers(start, min(start + 12, len(BUNDLE))))
    middle = data.draw(st.text("abcdegimnoprstu: -[]{}'\"&*!|>#\n\t1~\x00\ud800é", max_size=6))
    assert isinstance(parsed(BUNDLE[:start] + middle + BUNDLE[end:]), Bundle | PolicyInvalid)
