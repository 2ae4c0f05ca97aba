"""Which graph a command line means, and the flags that say so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from omnigraph.cli.addressing import ServedTarget, Target, resolve_any
from omnigraph.cli.help import Command
from omnigraph.cli.main import root_command
from omnigraph.cli.options import GlobalFlag
from tests.support.tables import check_all

FLAGS = {
    GlobalFlag.SERVER: ["--server", "http://127.0.0.1:1"],
    GlobalFlag.CLUSTER: ["--cluster", "elsewhere"],
    GlobalFlag.GRAPH: ["--graph", "team"],
    GlobalFlag.STORE: ["--store", "elsewhere.omni"],
    GlobalFlag.ACTOR: ["--as", "act-ana"],
    GlobalFlag.PROFILE: ["--profile", "team"],
    GlobalFlag.YES: ["--yes"],
}
ARGUMENTS = {
    "blob get": ["node", "Person", "ada", "photo", "--out", "ada.png"],
    "blob stat": ["node", "Person", "ada", "photo"],
    "branch create": ["new"],
    "branch delete": ["old"],
    "branch cherry-pick": ["01K3Z7M0Q8W4R6T2Y5V9B1N3XC"],
    "branch diff": ["main", "old"],
    "branch merge": ["old"],
    "changes baseline": ["--out", "base.jsonl"],
    "compute": ["pagerank"],
    "commit changes": ["01K3Z7M0Q8W4R6T2Y5V9B1N3XC"],
    "commit revert": ["01K3Z7M0Q8W4R6T2Y5V9B1N3XC"],
    "tag create": ["v1", "HEAD"],
    "review open": ["review", "--title", "t"],
    "review comment": ["cr-1", "text"],
    "review resolve": ["cr-1", "c-1"],
    "fmt": ["schema.pg"],
    "review show": ["cr-1"],
    "review diff": ["cr-1"],
    "review edit": ["cr-1"],
    "review approve": ["cr-1"],
    "review request-changes": ["cr-1"],
    "review check": ["cr-1"],
    "review merge": ["cr-1"],
    "review close": ["cr-1"],
    "review reopen": ["cr-1"],
    "tag delete": ["v1"],
    "schema apply": ["--schema", "schema.pg"],
    "schema rebase": ["old"],
    "commit show": ["01K3Z7M0Q8W4R6T2Y5V9B1N3XC"],
    "cluster approve": ["graph.team"],
    "cluster import": [],
    "cluster force-unlock": ["lock"],
    "import": ["cities.csv", "new.omni"],
    "backup create": ["team.omni", "backups"],
    "backup verify": ["backups"],
    "backup restore": ["backups", "new.omni"],
    "backup list": ["backups"],
    "backup prune": ["backups", "--keep", "1"],
    "clone": ["team.omni", "new.omni"],
    "push": ["team.omni", "origin.omni"],
    "pull": ["team.omni", "origin.omni"],
    "infer": ["cities.csv"],
    "init": ["--schema", "schema.pg", "new.omni"],
    "lint": ["--query", "queries.gq"],
    "translate": ["--from", "cypher", "queries.cypher"],
    "login": ["prod", "--token", "t"],
    "completion": ["bash"],
    "alias": ["triage"],
    "audit load": ["audit.jsonl", "--into", "audit.omni"],
    "audit show": ["audit.jsonl"],
    "logout": ["prod"],
    "load": ["--data", "data.jsonl", "--mode", "merge"],
    "pipeline init": ["p.yaml"],
    "pipeline plan": ["p.yaml"],
    "pipeline run": ["p.yaml"],
    "pipeline validate": ["p.yaml"],
    "policy explain": ["--file", "p.yaml", "--actor", "act-ana", "--action", "read"],
    "policy test": ["--file", "p.yaml", "--tests", "t.yaml"],
    "policy validate": ["--file", "p.yaml"],
    "schema check": ["schema.pg"],
    "schema plan": ["--from", "schema.pg", "--schema", "schema.pg"],
}
TAKEN = {
    "query": "server graph store profile",
    "mutate": "server graph store as profile",
    "load": "server graph store as profile yes",
    "branch create": "server graph store as profile",
    "branch delete": "server graph store as profile yes",
    "branch cherry-pick": "server graph store as profile",
    "branch diff": "server graph store profile",
    "branch merge": "server graph store as profile",
    "changes baseline": "server graph store profile",
    "compute": "store as profile",
    "embed": "store as profile",
    "changes poll": "server graph store profile",
    "commit changes": "server graph store profile",
    "commit revert": "server graph store as profile",
    "tag create": "server graph store as profile",
    "tag list": "server graph store profile",
    "tag delete": "server graph store as profile yes",
    "schema apply": "server graph store as profile yes",
    "schema rebase": "server graph store as profile",
    "snapshot": "server graph store profile",
    "export": "server graph store profile",
    "blob get": "server graph store profile",
    "blob stat": "server graph store profile",
    "branch list": "server graph store profile",
    "commit list": "server graph store profile",
    "commit show": "server graph store profile",
    "schema show": "server graph store profile",
    "lint": "cluster graph store profile",
    "translate": "cluster graph store profile",
    "fmt": "",
    "lsp": "",
    "review open": "server graph store as profile",
    "review list": "server graph store profile",
    "review show": "server graph store profile",
    "review diff": "server graph store profile",
    "review edit": "server graph store as profile",
    "review comment": "server graph store as profile",
    "review resolve": "server graph store as profile",
    "review approve": "server graph store as profile",
    "review request-changes": "server graph store as profile",
    "review check": "server graph store as profile",
    "review merge": "server graph store as profile",
    "review close": "server graph store as profile",
    "review reopen": "server graph store as profile",
    "review export": "server graph store profile",
    "studio": "store as profile",
    "index": "cluster graph store profile",
    "optimize": "cluster graph store profile",
    "cleanup": "cluster graph store profile yes",
    "doctor": "cluster graph store profile",
    "scrub": "cluster graph store profile",
    "backup create": "",
    "backup verify": "",
    "backup restore": "",
    "backup list": "",
    "backup prune": "",
    "clone": "",
    "push": "as",
    "pull": "as",
    "repair": "cluster graph store profile",
    "stats": "server graph store profile",
    "recover": "cluster graph store profile",
    "recovery list": "cluster graph store profile",
    "mcp": "server graph store profile",
    "graphs list": "server profile",
    "pipeline init": "store profile",
    "pipeline plan": "store profile",
    "pipeline run": "store as profile yes",
    "pipeline validate": "store profile",
    "policy explain": "cluster graph profile",
    "policy test": "cluster graph profile",
    "policy validate": "cluster graph profile",
    "serve": "cluster store",
    "login": "",
    "completion": "",
    "logout": "",
    "cluster validate": "",
    "cluster plan": "",
    "cluster apply": "as",
    "cluster approve": "as",
    "cluster status": "",
    "cluster refresh": "",
    "cluster import": "",
    "cluster force-unlock": "",
    "audit load": "",
    "audit show": "",
    "shell": "server graph store as profile",
    "use": "server graph store profile",
    "alias": "",
    "config path": "",
    "config show": "server graph store as profile",
    "profile list": "",
    "profile show": "",
    "import": "as yes",
    "infer": "",
    "init": "",
    "schema check": "",
    "schema plan": "store profile",
    "version": "",
}
MISPLACED = {
    command: [flag for flag in FLAGS if flag.spelling.removeprefix("--") not in taken.split()]
    for command, taken in TAKEN.items()
    if command != "alias"  # tells all of them at once, in a test of its own
}


@pytest.fixture
def settings(no_settings: Path):
    """Write the operator's configuration."""

    def write(text: str) -> Path:
        no_settings.mkdir(exist_ok=True)
        path = no_settings / "config.yaml"
        path.write_text(text, encoding="utf-8")
        return path

    return write


# --- which flags ----------------------------------------------------------------------------------


def test_c_cli_004_the_commands_take_the_flags_of_the_matrix():
    root = root_command()
    found = {}
    for leaf in root.leaves(None):
        command = root.called(leaf.name)
        assert isinstance(command, Command)
        assert command.capability is leaf.capability
        found[leaf.name] = {flag.spelling.removeprefix("--") for flag in command.takes}
    assert found == {command: set(taken.split()) for command, taken in TAKEN.items()}


@pytest.mark.parametrize("command", MISPLACED)
def test_c_cli_004_007_a_misplaced_flag_is_refused_before_anything_is_read(run, command: str):
    def check(flag: GlobalFlag) -> None:
        done = run(*command.split(), *ARGUMENTS.get(command, []), *FLAGS[flag])
        assert done.code == 2
        assert done.out == ""
        sentence, hint = done.err.splitlines()
        assert done.err == f"{sentence.rstrip()}\n{hint.rstrip()}\n"
        assert sentence.startswith(f"error: `{command}` is a")
        assert sentence.endswith(f" command; {flag.spelling} {flag.purpose} and does not apply.")
        assert hint.startswith("hint: ")

    check_all({flag.spelling: flag for flag in MISPLACED[command]}, check)


def test_c_cli_006_reads_and_upkeep_have_no_actor(run, full_graph: str):
    for command in (["snapshot", full_graph], ["export", full_graph], ["recover", full_graph]):
        done = run(*command, "--as", "act-ana")
        assert (done.code, done.out) == (2, "")
        assert "--as names the actor of a write and does not apply." in done.err
    assert "`recover` is a direct command" in done.err


@pytest.mark.parametrize("flag", ["--store", "--profile", "--as"])
def test_an_empty_value_is_an_error_and_not_silence(run, flag: str):
    done = run("mutate", "-e", "query", flag, "")
    assert done.code == 2
    assert f"`{flag}` is empty" in done.err


@pytest.mark.parametrize(
    "arguments",
    [
        ["snapshot", "{graph}", "--branch", ""],
        ["load", "{graph}", "--data", "{data}", "--mode", "merge", "--branch", ""],
        ["branch", "create", "new", "--uri", "{graph}", "--from", ""],
    ],
)
def test_an_empty_branch_name_never_means_main(run, full_graph: str, people: Path, arguments):
    done = run(*(word.format(graph=full_graph, data=people) for word in arguments))
    assert done.code == 1
    assert "branch name '' is empty" in done.err


# --- which graph ----------------------------------------------------------------------------------


def test_every_way_to_name_a_graph_leads_to_it(run, full_graph: str, settings):
    expected = run("snapshot", full_graph)
    assert expected.code == 0
    assert run("snapshot", "--store", full_graph) == expected
    assert run("--store", full_graph, "snapshot") == expected
    assert run("snapshot", Path(full_graph).as_uri()) == expected
    assert run("branch", "list", "--store", full_graph).out == "main\n"
    assert run("branch", "list", "--uri", full_graph).out == "main\n"


@pytest.fixture
def addressed(run, monkeypatch: pytest.MonkeyPatch):
    """What a command line addresses; the command itself is not run."""
    found: list[Target | ServedTarget] = []
    monkeypatch.setattr(Command, "invoke", lambda self, ctx: found.append(resolve_any(ctx)))

    def address(*words: str) -> Target | ServedTarget:
        done = run(*words)
        assert done.code == 0, done.err
        return found.pop()

    return address


@pytest.mark.parametrize(
    "command", [command for command, taken in TAKEN.items() if "store" in taken.split()]
)
def test_all_commands_name_a_graph_in_the_same_ways(addressed, settings, command: str):
    settings(
        "servers: {prod: {url: 'http://localhost:1'}}\n"
        "profiles: {team: {store: team.omni}, served: {server: prod, default_graph: a}}\n"
    )
    words = [*command.split(), *ARGUMENTS.get(command, [])]
    stored = Target("team.omni")
    assert addressed(*words, "--store", "team.omni") == stored
    assert addressed("--store=team.omni", *words) == stored
    assert addressed(*words, "--uri", "team.omni") == stored
    if command != "pipeline init":  # its last argument is a list of files
        assert addressed(*words, "team.omni") == stored
    if command in ("query", "mutate"):
        assert addressed(command, "friends", "./team", "-e", "…") == Target("./team")
        assert addressed(command, "./team", "friends", "-e", "…") == Target("./team")
    taken = TAKEN[command].split()
    if "profile" in taken:
        assert addressed(*words, "--profile", "team") == stored
    if "server" in taken:
        url = "http://localhost:1"
        assert addressed(*words, "--server", url, "--graph", "a").graph == "a"
        assert addressed(*words, "--server", "prod", "--graph", "a").url == url
        assert addressed(*words, "--profile", "served").graph == "a"
        assert addressed(*words, "--profile", "served", "--graph", "b").graph == "b"


def test_two_positions_too_many_and_a_position_beside_a_flag_are_refused(run):
    done = run("load", "--store", "team.omni", "--mode", "merge", "--data", "a.jsonl", "b.jsonl")
    assert done.code == 2
    assert "`URI` and `--store` are mutually exclusive" in done.err
    assert "`b.jsonl` is taken for the URI of a graph" in done.err
    done = run("load", "--mode", "merge", "--data", "a.jsonl", "b.jsonl", "c.jsonl")
    assert done.code == 2
    assert "b.jsonl c.jsonl" in done.err


def test_c_cli_008_two_ways_at_once_are_mutually_exclusive(run, full_graph: str):
    done = run("snapshot", full_graph, "--store", full_graph)
    assert done.code == 2
    assert "`URI` and `--store` are mutually exclusive" in done.err
    done = run("branch", "list", "--uri", full_graph, "--store", full_graph)
    assert done.code == 2
    assert "`--uri` and `--store` are mutually exclusive" in done.err


@pytest.mark.parametrize("url", ["http://localhost:8080/graphs/team", "HTTPS://u:pw@example.com"])
def test_c_cli_010_the_url_of_a_server_is_refused_naming_the_flag(
    run, url: str, schema_file: Path, people: Path
):
    for command in (
        ["snapshot", url],
        ["load", url, "--data", people, "--mode", "merge"],
        ["branch", "list", "--uri", url],
        ["snapshot", "--store", url],
        ["init", "--schema", schema_file, url],
    ):
        done = run(*command)
        assert done.code == 2
        assert "--server" in done.err
        assert "pw" not in done.err


def test_c_cli_012_profile_then_variable_then_default(
    run, full_graph: str, schema_file: Path, tmp_path: Path, settings, monkeypatch
):
    places = {name: str(tmp_path / f"{name}.omni") for name in ("flag", "variable", "default")}
    for place in places.values():
        run("init", "--schema", schema_file, place)
        run("branch", "create", f"in-{Path(place).stem}", "--uri", place)
    settings(
        f"profiles:\n  one: {{store: {places['flag']}}}\n  two: {{store: {places['variable']}}}\n"
        f"defaults:\n  store: {places['default']}\n"
    )

    def branch(*flags: str) -> str:
        return str(run("branch", "list", *flags).out.splitlines()[0])

    assert branch() == "in-default"
    monkeypatch.setenv("OMNIGRAPH_PROFILE", "two")
    assert branch() == "in-variable"
    assert branch("--profile", "one") == "in-flag"
    assert branch("--profile", "one", "--store", places["default"]) == "in-default"


def test_without_any_way_the_ways_are_listed(run, no_settings: Path):
    done = run("snapshot")
    assert done.code == 2
    assert "`omnigraph snapshot` does not know which graph is meant" in done.err
    for way in ("`--store URI`", "`--server URL`", "`--profile NAME`", "`omnigraph use`"):
        assert way in done.err
    assert str(no_settings / "config.yaml") in done.err


def test_a_path_in_the_settings_may_start_at_home(
    run, full_graph: str, settings, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("HOME", str(Path(full_graph).parent))
    settings("defaults: {store: ~/graph.omni}\n")
    assert run("branch", "list").out == "main\n"


def test_an_explicit_graph_needs_no_settings_at_all(run, full_graph: str, settings):
    settings("defaults: [\n")
    assert run("snapshot", full_graph).code == 0


def test_a_file_in_the_working_directory_is_never_read(run, tmp_path: Path, monkeypatch):
    (tmp_path / "omnigraph.yaml").write_text("defaults: {store: graph.omni}\n")
    run("version")
    monkeypatch.chdir(tmp_path)
    assert run("snapshot").code == 2


def test_an_ambient_profile_does_not_concern_commands_without_a_graph(run, monkeypatch):
    monkeypatch.setenv("OMNIGRAPH_PROFILE", "missing")
    assert run("version").code == 0
    assert run("schema", "check", "examples/social/schema.pg").code == 0


# --- settings -------------------------------------------------------------------------------------


@pytest.mark.parametrize("other", ["server: prod", "default_graph: team"])
def test_c_cli_013_contradictory_defaults_fail(run, settings, other: str):
    settings(f"defaults:\n  store: graph.omni\n  {other}\n")
    done = run("snapshot")
    assert done.code == 1
    assert "contradict each other" in done.err


def test_c_cli_013_unknown_keys_only_warn(run, full_graph: str, settings):
    settings(
        "surprise: 1\n"
        "servers: {prod: {url: 'https://example.com', token: x}}\n"
        f"defaults: {{store: '{full_graph}', output: table, colour: pink}}\n"
        "aliases: {triage: {server: prod, query: q, params: {anything: [1]}}}\n"
    )
    done = run("branch", "list")
    assert done.code == 0
    assert [line.partition(" in ")[0] for line in done.err.splitlines()] == [
        "warning: unknown key `surprise`",
        "warning: unknown key `servers.prod.token`",
        "warning: unknown key `defaults.colour`",
    ]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("defaults: [", "config.yaml:"),
        ("- one\n- two\n", "is not a mapping of settings"),
        ("defaults: store\n", "`defaults` in"),
        ("defaults: {store: 7}\n", "`defaults.store` in"),
        ("defaults: {store: a}\ndefaults: {store: b}\n", "config.yaml:"),
        ("defaults: {store: \x07}\n", "is not valid YAML"),
        ("defaults: {server: prod}\n", "there is no server `prod`"),
        ("defaults: {server: prod}\nservers: {prod: {}}\n", "server `prod` has no `url`"),
    ],
)
def test_settings_that_make_no_sense_are_one_sentence(run, settings, text: str, problem: str):
    settings(text)
    done = run("snapshot")
    assert done.code in (1, 2)
    assert problem in done.err
    assert "Traceback" not in done.err


@pytest.mark.parametrize(
    ("profile", "problem"),
    [
        ("{}", "profile `team` binds nothing"),
        ("{store: a, cluster: b}", "profile `team` binds `cluster` and `store`"),
        ("{server: prod}", "there is no server `prod`"),
        ("{cluster: brain}", "profile `team` addresses a cluster"),
    ],
)
def test_a_profile_that_cannot_be_used_says_why(run, settings, profile: str, problem: str):
    settings(f"profiles: {{team: {profile}}}\n")
    assert problem in run("snapshot", "--profile", "team").err


def test_settings_that_cannot_be_read_are_an_error(run, no_settings: Path):
    (no_settings / "config.yaml").mkdir(parents=True)
    done = run("snapshot")
    assert done.code == 1
    assert "cannot read `" in done.err


def test_the_actor_is_the_flag_or_the_configured_one(run, graph: str, people: Path, settings):
    settings("operator: {actor: act-settings}\n")
    load = ["load", graph, "--data", people, "--json", "--mode"]
    first = json.loads(run(*load, "append").out)
    second = json.loads(run(*load, "overwrite", "--as", "act-ana").out)
    assert first["commit"]["actor_id"] == first["actor_id"] == "act-settings"
    assert second["commit"]["actor_id"] == "act-ana"


def test_locality_is_a_matter_of_the_scheme():
    for uri in ("graph.omni", "./a b/c", "file:///data/graph.omni", "FILE:///x"):
        assert Target(uri).is_local
    for uri in ("s3://lake/graph.omni", "S3://lake/x", "memory://x"):
        assert not Target(uri).is_local
    assert str(Target("s3://key:secret@lake/x")) == "s3://lake/x"
