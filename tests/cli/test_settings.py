"""What an operator sets for all commands: `use`, `profile`, `config`, and the keychain."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from omnigraph.cli.login import Credentials

CONFIG = """\
# kept by hand
operator: {actor: act-ana}
servers:
  prod:
    url: https://user:hunter2@graph.example.com  # the large one
profiles:
  good: {store: team.omni, output: csv}
  served: {server: prod, default_graph: team}
  both: {store: a, server: prod}
  none: {}
  lost: {server: elsewhere}
  odd: [1]
  cluster: {cluster: brain}
clusters: {brain: {root: s3://acme/brain}}
aliases:
  triage: {server: prod, graph: team, query: weekly, args: [since]}
  broken: {query: weekly}
"""


@pytest.fixture
def config(no_settings: Path) -> Path:
    no_settings.mkdir()
    path = no_settings / "config.yaml"
    path.write_text(CONFIG, encoding="utf-8")
    return path


def origins(run, *flags: str) -> dict[str, tuple[str | None, str]]:
    done = run("config", "show", "--json", *flags)
    assert done.code == 0, done.err
    found = json.loads(done.out)["settings"]
    return {row["setting"]: (row["value"], row["origin"]) for row in found}


# --- profiles -------------------------------------------------------------------------------------


def test_c_cli_045_profiles_are_listed_with_the_active_and_the_invalid_ones_marked(
    run, config: Path, monkeypatch: pytest.MonkeyPatch
):
    listed = json.loads(run("profile", "list", "--json", "--profile", "good").out or "{}")
    assert listed["code"] == "bad_request"  # it takes no profile: it lists all
    monkeypatch.setenv("OMNIGRAPH_PROFILE", "served")
    profiles = json.loads(run("profile", "list", "--json").out)["profiles"]
    by_name = {each["name"]: each for each in profiles}
    assert list(by_name) == sorted(by_name)
    assert by_name["served"] == {
        "name": "served",
        "binding": "server prod",
        "scope_kind": "server",
        "target": "prod",
        "valid": True,
        "error": None,
        "default_graph": "team",
        "active": True,
    }
    assert [name for name, each in by_name.items() if each["active"]] == ["served"]
    assert {name for name, each in by_name.items() if not each["valid"]} == {
        *("both", "none", "lost", "odd")
    }
    assert by_name["both"]["binding"] == "server prod, store a"
    assert "binds `server` and `store`" in by_name["both"]["error"]
    assert by_name["both"]["scope_kind"] == "none"
    assert "there is no server `elsewhere`" in by_name["lost"]["error"]
    shown = run("profile", "list")
    assert shown.code == 0
    marked = {line.split()[1]: line for line in shown.out.splitlines() if line.startswith("*")}
    assert list(marked) == ["served"]
    assert sum("invalid: " in line for line in shown.out.splitlines()) == 4


def test_a_profile_is_shown_with_where_it_leads(run, config: Path):
    assert json.loads(run("profile", "show", "served", "--json").out) == {
        "name": "served",
        "scope_kind": "server",
        "target": "prod",
        "endpoint": "https://graph.example.com",
        "default_graph": "team",
        "output_format": None,
    }
    cluster = json.loads(run("profile", "show", "cluster", "--json").out)
    assert cluster["endpoint"] == "s3://acme/brain"
    assert json.loads(run("profile", "show", "--json").out)["name"] == "(defaults)"
    run("use", "good")
    active = json.loads(run("profile", "show", "--json").out)
    assert (active["name"], active["output_format"]) == ("good", "csv")
    assert "did you mean `served`?" in run("profile", "show", "serve").err


def test_a_profile_says_how_results_are_printed(run, config: Path, full_graph: str):
    config.write_text(f"profiles: {{good: {{store: {full_graph}, output: csv}}}}\n")
    query = ["query", "-e", "query q { match { $p: Person } return { $p.name } }"]
    assert run(*query, "--profile", "good").out.startswith("p.name\n")
    assert not run(*query, "--profile", "good", "--format", "kv").out.startswith("p.name\n")
    assert not run(*query, "--store", full_graph).out.startswith("p.name\n")


# --- use ------------------------------------------------------------------------------------------


def test_use_chooses_the_graph_of_all_commands_and_keeps_the_rest_of_the_file(
    run, config: Path, full_graph: str, monkeypatch: pytest.MonkeyPatch
):
    before = config.read_text()
    monkeypatch.chdir(Path(full_graph).parent)
    assert run("use", "--store", full_graph).code == 0
    assert config.read_text() == before + f"defaults:\n  store: {full_graph}\n"
    assert run("branch", "list").out == "main\n"
    assert run("use").out == f"{full_graph}, from config.yaml:19\n"
    assert run("use", "served").code == 0
    assert "defaults:\n  profile: served\n" in config.read_text()
    assert "  store: /" not in config.read_text()
    assert run("use").out == "https://graph.example.com/graphs/team, from config.yaml:19\n"
    monkeypatch.setenv("OMNIGRAPH_PROFILE", "good")
    assert run("use").out == "team.omni, from OMNIGRAPH_PROFILE\n"
    monkeypatch.delenv("OMNIGRAPH_PROFILE")
    assert run("use", "--server", "prod", "--graph", "other").code == 0
    assert run("use").out == "https://graph.example.com/graphs/other, from config.yaml:19\n"
    assert run("use", "--clear").code == 0
    assert config.read_text() == before
    assert run("use").out == "nothing, from default\n"


def test_use_keeps_a_path_for_every_folder_and_makes_the_file(
    run, no_settings: Path, full_graph: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    run("version")
    monkeypatch.chdir(tmp_path)
    from omnigraph.cli.main import main

    assert main(["use", "./graph.omni"]) == 0
    assert full_graph in (no_settings / "config.yaml").read_text()
    assert run("branch", "list").out == "main\n"


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["good", "--store", "a.omni"], "mutually exclusive"),
        (["--profile", "good", "--server", "prod"], "mutually exclusive"),
        (["missing"], "there is no profile `missing`"),
        (["both"], "binds `server` and `store`"),
        (["--server", "elsewhere"], "there is no server `elsewhere`"),
        (["--graph", "team"], "`--graph` picks one of a server"),
        (["--store", "a.omni", "--graph", "team"], "`--graph` picks one of a server"),
        (["--clear", "good"], "`--clear` chooses nothing"),
        (["--store", "https://graph.example.com"], "--server"),
    ],
)
def test_use_refuses_what_no_command_could_use(run, config: Path, words, problem: str):
    done = run("use", *words)
    assert done.code in (1, 2)
    assert problem in done.err
    assert config.read_text() == CONFIG


@pytest.mark.parametrize("other", ["store: a", "server: prod", "default_graph: team"])
def test_c_cli_013_a_default_profile_stands_alone(run, config: Path, other: str):
    config.write_text(f"{CONFIG}defaults: {{profile: good, {other}}}\n")
    done = run("snapshot")
    assert done.code == 1
    assert "contradict each other" in done.err


# --- config ---------------------------------------------------------------------------------------


def test_config_shows_the_origin_of_every_value(run, config: Path, monkeypatch: pytest.MonkeyPatch):
    found = origins(run)
    assert found["folder"] == (str(config.parent), "OMNIGRAPH_HOME")
    assert found["graph"] == (None, "default")
    assert found["actor"] == ("act-ana", "config.yaml:2")
    assert found["output"] == ("table", "default")
    assert found["servers.prod"] == ("https://graph.example.com", "config.yaml:5")
    assert found["profiles.good"] == ("store team.omni", "config.yaml:7")
    assert found["aliases.triage"] == ("weekly on prod", "config.yaml:16")
    assert "has no `server`" in str(found["aliases.broken"][0])
    assert origins(run, "--as", "act-bo")["actor"] == ("act-bo", "--as")
    assert origins(run, "--profile", "good")["graph"] == ("team.omni", "--profile")
    assert origins(run, "--profile", "good")["output"] == ("csv", "config.yaml:7")
    assert origins(run, "--store", "s3://k:v@lake/g")["graph"] == ("s3://lake/g", "--store")
    monkeypatch.setenv("OMNIGRAPH_PROFILE", "both")
    value, origin = origins(run)["graph"]
    assert origin == "OMNIGRAPH_PROFILE" and str(value).startswith("invalid: profile `both`")
    assert run("config", "path").out == f"{config}\n"


def test_config_tells_of_secrets_only_where_they_are(
    run, config: Path, monkeypatch: pytest.MonkeyPatch
):
    assert origins(run)["servers.prod.token"] == (None, "not set")
    monkeypatch.setenv("OMNIGRAPH_BEARER_TOKEN", "s3cr3t-one")
    assert origins(run)["servers.prod.token"] == ("(set)", "OMNIGRAPH_BEARER_TOKEN")
    run("login", "prod", "--token", "s3cr3t-two")
    assert origins(run)["servers.prod.token"] == ("(set)", "credentials")
    monkeypatch.setenv("OMNIGRAPH_TOKEN_PROD", "s3cr3t-three")
    monkeypatch.setenv("OMNIGRAPH_SERVER_BEARER_TOKENS_JSON", '{"a": "s3cr3t-four"}')
    monkeypatch.setenv("OMNIGRAPH_CACHE_BYTES", "1000")
    found = origins(run)
    assert found["servers.prod.token"] == ("(set)", "OMNIGRAPH_TOKEN_PROD")
    assert found["OMNIGRAPH_SERVER_BEARER_TOKENS_JSON"] == ("(set)", "environment")
    assert found["OMNIGRAPH_CACHE_BYTES"] == ("1000", "environment")
    for shape in ([], ["--json"]):
        done = run("config", "show", *shape)
        assert "s3cr3t" not in done.out + done.err
        assert "hunter2" not in done.out + done.err


# --- keychain -------------------------------------------------------------------------------------

SECRET_TOOL = """\
#!/bin/sh
# Keeps what it is given in a file of its own, as the keychain would.
verb=$1; shift
[ "$verb" = store ] && shift
file="$KEYCHAIN/$(echo "$*" | tr ' ' '-')"
case "$verb" in
  store) echo "$@" >> "$KEYCHAIN/arguments"; cat > "$file" ;;
  lookup) cat "$file" 2>/dev/null ;;
  clear) rm -f "$file" ;;
esac
"""


@pytest.fixture
def keychain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "keychain"
    folder.mkdir()
    program = folder / "secret-tool"
    program.write_text(SECRET_TOOL)
    program.chmod(0o755)
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("KEYCHAIN", str(folder))
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return folder


def test_c_cli_019_a_token_in_the_keychain_is_in_no_file_of_ours(run, config: Path, keychain: Path):
    run("login", "staging", "--token", "kept-in-the-file")
    done = run("login", "prod", "--token", "kept-in-the-keychain", "--keychain")
    assert (done.code, done.out) == (0, "the token of prod is kept in the keychain\n")
    credentials = Credentials(config.with_name("credentials"))
    assert "kept-in-the-keychain" not in credentials.path.read_text()
    assert stat.S_IMODE(credentials.path.stat().st_mode) == 0o600
    assert "kept-in-the-keychain" not in (keychain / "arguments").read_text()
    assert credentials.token("prod") == "kept-in-the-keychain"
    assert credentials.token("staging") == "kept-in-the-file"
    assert origins(run)["servers.prod.token"] == ("(set)", "keychain")
    assert run("logout", "prod").code == 0
    assert credentials.token("prod") is None
    assert not list(keychain.glob("service-*"))


def test_a_keychain_that_is_locked_or_not_there_says_what_to_do(
    run, config: Path, keychain: Path, monkeypatch: pytest.MonkeyPatch
):
    config.write_text("servers: {prod: {url: 'https://graph.example.com'}}\n")
    run("login", "prod", "--token", "s3cr3t-one", "--keychain")
    for kept in keychain.glob("service-*"):
        kept.unlink()
    gone = run("branch", "list", "--server", "prod", "--graph", "a")
    assert gone.code == 1
    assert "omnigraph login prod --keychain" in gone.err
    monkeypatch.setenv("PATH", "/nonexistent")
    none = run("login", "prod", "--token", "s3cr3t-two", "--keychain")
    assert none.code == 1
    assert "there is no `secret-tool`" in none.err and "s3cr3t-two" not in none.err
