"""Servers on the command line: how they are addressed, which token they get, what is refused."""

from __future__ import annotations

import io
import json
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from omnigraph.cli.login import Credentials, token_for
from omnigraph.cli.main import main
from omnigraph.cli.operator_config import OperatorConfig
from omnigraph.errors import InputError
from omnigraph.server.config import GraphSpec
from tests.client.conftest import Guarded
from tests.client.test_failures import answering, http, unused_url
from tests.server.live import ADD, PEOPLE, QUERIES, SERVER_POLICY, TOKENS, Live, new_graph, serving

ANA, BO = TOKENS["act-ana"], TOKENS["act-bo"]


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str


Run = Callable[..., Outcome]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("OMNIGRAPH_HOME", str(folder))
    for name in ("OMNIGRAPH_PROFILE", "OMNIGRAPH_BEARER_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    return folder


@pytest.fixture
def run(home: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*arguments: object) -> Outcome:
        capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        return Outcome(code, out, err)

    return call


def configure(home: Path, text: str) -> None:
    (home / "config.yaml").write_text(text)


# --- addressing -----------------------------------------------------------------------------------


def test_c_cli_012_a_server_is_found_by_url_name_profile_and_default(
    run: Run, home: Path, live: Live, monkeypatch: pytest.MonkeyPatch
):
    expected = "main\n"
    assert run("branch", "list", "--server", f"{live.url}/graphs/default").out == expected
    assert run("branch", "list", "--server", live.url, "--graph", "default").out == expected
    configure(
        home,
        f"servers: {{prod: {{url: '{live.url}'}}, wrong: {{url: '{unused_url()}'}}}}\n"
        "profiles: {team: {server: prod, default_graph: default}}\n",
    )
    assert run("branch", "list", "--server", "prod", "--graph", "default").out == expected
    assert run("branch", "list", "--profile", "team").out == expected
    monkeypatch.setenv("OMNIGRAPH_PROFILE", "team")
    assert run("branch", "list").out == expected
    monkeypatch.delenv("OMNIGRAPH_PROFILE")
    configure(
        home,
        f"servers: {{prod: {{url: '{live.url}'}}}}\n"
        "defaults: {server: prod, default_graph: default}\n",
    )
    assert run("branch", "list").out == expected
    assert run("branch", "list", "--graph", "other").code == 1
    misspelt = run("branch", "list", "--server", "prd")
    assert misspelt.code == 1 and "`prod`?" in misspelt.err


def test_c_cli_008_009_010_scopes_exclude_each_other(run: Run, url: str, spec: GraphSpec):
    both = run("snapshot", "--server", url, "--store", spec.uri)
    assert both.code == 2 and "mutually exclusive" in both.err
    assert "mutually exclusive" in run("snapshot", spec.uri, "--server", url).err
    single = run("snapshot", "--store", spec.uri, "--graph", "default")
    assert single.code == 2 and "already a single graph" in single.err
    positional = run("snapshot", url)
    assert positional.code == 2 and "--server" in positional.err


def test_c_cli_005_a_direct_command_says_what_it_needs(run: Run, home: Path, url: str):
    done = run("optimize", "--server", url)
    assert done.code == 2
    assert "`optimize` is a direct command; --server addresses a server" in done.err
    assert "hint: address its storage instead, with `--store URI`" in done.err
    configure(home, f"servers: {{prod: {{url: '{url}'}}}}\ndefaults: {{server: prod}}\n")
    scoped = run("optimize")
    assert scoped.code == 2
    assert "`defaults.server`" in scoped.err and "needs storage" in scoped.err


def test_c_cli_015_a_server_without_a_graph_lists_the_candidates(
    run: Run, guarded: Guarded, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("OMNIGRAPH_BEARER_TOKEN", ANA)
    asked = run("branch", "list", "--server", guarded.live.url)
    assert asked.code == 2 and "`--graph`: default" in asked.err
    monkeypatch.setenv("OMNIGRAPH_BEARER_TOKEN", BO)
    unknown = run("branch", "list", "--server", guarded.live.url)
    assert unknown.code == 1 and "--graph ID" in unknown.err


def test_c_cli_016_graphs_list_needs_a_server(
    run: Run, home: Path, guarded: Guarded, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("OMNIGRAPH_BEARER_TOKEN", ANA)
    listed = run("graphs", "list", "--server", guarded.live.url)
    assert listed.code == 0 and listed.out.startswith("default\t")
    shown = run("graphs", "list", "--server", guarded.live.url, "--json")
    assert [entry["graph_id"] for entry in json.loads(shown.out)["graphs"]] == ["default"]
    for flags in (["--graph", "x"], ["--store", "y"], ["--as", "act-z"]):
        assert run("graphs", "list", *flags).code == 2
    assert "nothing addresses a server" in run("graphs", "list").err
    configure(home, "profiles: {p: {store: team.omni}}\n")
    assert "is no server" in run("graphs", "list", "--profile", "p").err


# --- tokens ---------------------------------------------------------------------------------------


def test_c_cli_020_a_token_goes_to_its_own_server_only(tmp_path: Path):
    config = OperatorConfig(
        tmp_path / "config.yaml",
        {
            "servers": {
                "eu": {"url": "https://graph.example.com/eu"},
                "all-of-it": {"url": "https://graph.example.com"},
                "other": {"url": "https://other.example.com"},
            }
        },
    )
    Credentials.beside(config).keep("other", "kept-for-other")
    own = {"OMNIGRAPH_TOKEN_EU": "of-eu", "OMNIGRAPH_TOKEN_ALL_OF_IT": "of-all"}
    anywhere = {"OMNIGRAPH_BEARER_TOKEN": "for-any"}

    def token(url: str, **environment: str) -> str | None:
        return token_for(url, config, environment)

    assert token("https://graph.example.com/eu/graphs/a", **own) == "of-eu"
    assert token("https://graph.example.com/europe/graphs/a", **own) == "of-all"
    assert token("https://graph.example.com.evil.example/eu", **own) is None
    assert token("http://graph.example.com/eu", **own) is None
    assert token("https://other.example.com/graphs/a", **own, **anywhere) == "kept-for-other"
    assert token("https://elsewhere.example.com/graphs/a", **own, **anywhere) == "for-any"
    assert token("https://graph.example.com/eu/graphs/a", **anywhere) == "for-any"


def test_c_cli_019_credentials_are_private_and_sections_are_kept(
    run: Run, home: Path, monkeypatch: pytest.MonkeyPatch
):
    configure(home, "servers: {prod: {url: 'https://graph.example.com'}}\n")
    assert run("login", "prod", "--token", ANA).code == 0
    path = home / "credentials"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{BO}\n"))
    piped = run("login", "staging", "--json")
    assert json.loads(piped.out) == {
        "server": "staging",
        "credentials_path": str(path),
        "declared": False,
    }
    assert "not under `servers`" in piped.err
    assert Credentials(path).token("prod") == ANA
    assert Credentials(path).token("staging") == BO
    assert run("logout", "staging").code == run("logout", "staging").code == 0
    assert Credentials(path).token("staging") is None
    assert Credentials(path).token("prod") == ANA
    path.chmod(0o644)
    loose = run("branch", "list", "--server", "prod", "--graph", "a")
    assert loose.code == 1 and "chmod 600" in loose.err
    assert run("login", "https://graph.example.com", "--token", "t").code == 2
    assert run("login", "prod", "--token", " ").code == 2
    for text in (piped.out, piped.err, loose.out, loose.err):
        assert ANA not in text and BO not in text


def test_a_file_that_is_no_credentials_is_not_quoted(tmp_path: Path):
    path = tmp_path / "credentials"
    path.write_text("token-without-a-section")
    path.chmod(0o600)
    with pytest.raises(InputError) as wrong:
        Credentials(path).token("prod")
    assert "token-without" not in wrong.value.render()


def test_the_token_of_a_server_is_sent(run: Run, home: Path, guarded: Guarded):
    configure(home, f"servers: {{prod: {{url: '{guarded.live.url}'}}}}\n")
    address = ["--server", "prod", "--graph", "default"]
    refused = run("mutate", *address, "-e", ADD, "--params", '{"name": "cy"}')
    assert refused.code == 1 and "omnigraph login" in refused.err
    run("login", "prod", "--token", ANA)
    done = run("mutate", *address, "-e", ADD, "--params", '{"name": "cy"}', "--json")
    assert json.loads(done.out)["actor_id"] == "act-ana"


def test_the_configured_actor_is_for_storage_only(run: Run, home: Path, url: str):
    configure(home, "operator: {actor: act-ana}\n")
    done = run("mutate", "--server", url, "-e", ADD, "--params", '{"name": "cy"}', "--json")
    assert json.loads(done.out)["actor_id"] is None


# --- stored queries -------------------------------------------------------------------------------


def test_a_stored_query_runs_by_its_name(run: Run, url: str):
    rows = run("query", "older_than", "--server", url, "--params", '{"age": 40}', "--json")
    assert json.loads(rows.out)["rows"] == [{"p.name": "bo"}]
    added = run("mutate", "sign_up", "--server", url, "--params", '{"name": "cy"}', "--json")
    head = json.loads(added.out)["commit"]["graph_commit_id"]
    conditional = ["mutate", "sign_up", "--server", url, "--if-commit", head]
    assert run(*conditional, "--params", '{"name": "di"}').code == 0
    assert run(*conditional, "--params", '{"name": "ed"}').code == 4


def test_c_cli_021_022_stored_queries_need_a_server_and_the_right_verb(
    run: Run, url: str, spec: GraphSpec
):
    stored = run("query", "everybody", "--store", spec.uri)
    assert stored.code == 2 and "needs a server" in stored.err
    explained = run("query", "everybody", "--server", url, "--explain")
    assert explained.code == 2 and "needs the text of the query" in explained.err
    wrong = run("query", "sign_up", "--server", url, "--params", '{"name": "cy"}')
    assert wrong.code == 1 and "use `mutate`" in wrong.err
    wrong = run("mutate", "everybody", "--server", url)
    assert wrong.code == 1 and "use `query`" in wrong.err
    assert len(json.loads(run("commit", "list", "--server", url, "--json").out)["commits"]) == 2


# --- what only storage can do ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "flag"),
    [
        (["query", "-e", PEOPLE, "--engine", "local"], "--engine"),
        (["mutate", "-e", ADD, "--external-blobs", "file:///x"], "--external-blobs"),
        (["load", "--node", "Person=p.csv", "--mode", "append"], "--node"),
        (["load", "--data", "DATA", "--mode", "append", "--errors-out", "x"], "--errors-out"),
        (["load", "--data", "DATA", "--mode", "append", "--where", "a=b"], "--where"),
        (["load", "--data", "DATA", "--mode", "append", "--delimiter", "|"], "--delimiter"),
    ],
)
def test_a_flag_that_no_server_knows_is_refused_before_anything_is_sent(
    run: Run, command: list[str], flag: str, tmp_path: Path
):
    data = tmp_path / "data.jsonl"
    data.write_text("")
    words = [str(data) if word == "DATA" else word for word in command]
    done = run(*words, "--server", unused_url())
    assert (done.code, done.out) == (2, "")
    assert f"`{flag}` needs the storage of a graph" in done.err


def test_c_cli_039_041_writes_say_where_they_go_and_destruction_needs_consent(run: Run, url: str):
    run("branch", "create", "old", "--server", url)
    refused = run("branch", "delete", "old", "--server", url)
    assert refused.code == 1
    assert f"omnigraph branch delete → {url} (served)" in refused.err
    assert "pass `--yes`" in refused.err
    quiet = run("branch", "delete", "old", "--server", url, "--yes", "--quiet")
    assert (quiet.code, quiet.err) == (0, "")


def test_deleting_a_served_branch_tells_what_main_never_got(run: Run, url: str):
    run("branch", "create", "old", "--server", url)
    run("mutate", "--server", url, "--branch", "old", "-e", ADD, "--params", '{"name": "cy"}')
    done = run("branch", "delete", "old", "--server", url, "--yes")
    assert done.code == 0
    assert "warning: main never got 1 commit of old" in done.err


def test_a_branch_that_may_not_be_read_may_be_deleted(run: Run):
    answers = [
        http(403, '{"error": "no", "code": "forbidden"}'),
        http(
            200,
            '{"uri": "u", "name": "secret", "actor_id": null}',
            Content_Type="application/json",
        ),
    ]
    with answering(lambda number: answers[number - 1]) as (url, seen):
        assert run("branch", "delete", "secret", "--server", url, "--yes").code == 0
    assert len(seen) == 2


# --- failures -------------------------------------------------------------------------------------


def test_failures_name_the_server_and_the_request(run: Run, url: str):
    gone = run("branch", "list", "--server", unused_url())
    assert gone.code == 1 and "cannot reach http://127.0.0.1:" in gone.err
    missing = run("snapshot", "--server", url, "--branch", "none")
    assert missing.code == 1
    assert f"answered by {url} with status 404, request 01" in missing.err
    wrong = run("query", "--server", url, "-e", "query q { match { $p: Persom } return { $p } }")
    assert "^^^^^^" in wrong.err


def test_a_write_is_never_repeated_by_the_command_line(run: Run):
    busy = http(429, '{"error": "busy", "code": "too_many_requests"}', Retry_After="0")
    with answering(lambda _number: busy) as (url, seen):
        done = run("branch", "create", "x", "--server", url)
        assert done.code == 1
        assert len(seen) == 1


def test_c_cli_030_a_server_that_ignores_the_deletion_is_a_warning(run: Run):
    merged = http(
        200,
        '{"source": "a", "target": "main", "outcome": "merged", "actor_id": null}',
        Content_Type="application/json",
    )
    with answering(lambda _number: merged) as (url, _):
        done = run("branch", "merge", "a", "--delete-branch", "--server", url)
    assert done.code == 0
    assert "warning: branch a was not deleted" in done.err


@pytest.fixture
def two_graphs(tmp_path: Path) -> Iterator[Live]:
    queries = tmp_path / "people.gq"
    queries.write_text(QUERIES)
    policy = tmp_path / "server.yaml"
    policy.write_text(SERVER_POLICY)
    specs = []
    for name in ("one", "two"):
        new_graph(tmp_path / f"{name}.omni")
        specs.append(GraphSpec(name, str(tmp_path / f"{name}.omni"), (queries,)))
    with serving(*specs) as live:
        yield live


def test_one_of_several_graphs_is_picked(run: Run, two_graphs: Live):
    added = ["-e", ADD, "--params", '{"name": "cy"}']
    assert run("mutate", "--server", two_graphs.url, "--graph", "two", *added).code == 0
    counts = {
        name: json.loads(
            run("query", "-e", PEOPLE, "--server", two_graphs.url, "--graph", name, "--json").out
        )["row_count"]
        for name in ("one", "two")
    }
    assert counts == {"one": 2, "two": 3}


# --- aliases --------------------------------------------------------------------------------------


def test_c_cli_042_arguments_of_an_alias_are_json_first_and_an_alias_never_writes(
    run: Run, home: Path, tmp_path: Path, live: Live
):
    queries = tmp_path / "of-aliases.gq"
    queries.write_text(
        "query named($name: String, $age: I32) {"
        " match { $p: Person { name: $name }  $p.age > $age } return { $p.name } }\n"
        "query sign_up($name: String) { insert Person { name: $name } }\n"
    )
    spec = GraphSpec("team", live.graph().uri, (queries,))
    with serving(spec, waits=False) as served:
        configure(
            home,
            f"servers: {{prod: {{url: '{served.url}'}}}}\n"
            "aliases:\n"
            "  find: {server: prod, graph: team, query: named, args: [name, age], "
            "params: {age: 1}, format: csv}\n"
            "  join: {server: prod, graph: team, query: sign_up, args: [name]}\n",
        )
        assert run("alias", "find", "ada").out == "p.name\nada\n"
        assert run("alias", "find", '"ada"', "35").out == "p.name\nada\n"
        assert run("alias", "find", "ada", "36").out == "p.name\n"
        both = run("alias", "find", "bo", "50", "--params", '{"age": 2}', "--json")
        assert json.loads(both.out)["rows"] == [{"p.name": "bo"}]
        number = run("alias", "find", "7")  # JSON before text: a number is no name
        assert number.code == 1 and "name" in number.err
        commits = ["commit", "list", "--server", f"{served.url}/graphs/team", "--json"]
        before = run(*commits).out
        refused = run("alias", "join", "cy")
        assert refused.code == 1 and "use `mutate`" in refused.err
        assert run(*commits).out == before
        extra = run("alias", "find", "ada", "2", "3")
        assert extra.code == 2 and "takes name, age" in extra.err
        unknown = run("alias", "fnd")
        assert unknown.code == 1 and "did you mean `find`?" in unknown.err
        misplaced = run("alias", "find", "--store", "x", "--as", "act-ana")
        assert misplaced.code == 2
        assert "--store and --as do not apply" in misplaced.err
