"""The entrypoint turns variables into a server, and refuses what is unsafe with a way out."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from deploy import entrypoint
from omnigraph.cli.help import all_pages
from omnigraph.cli.main import root_command
from omnigraph.server import auth, config
from tests.deploy.launch import DEPLOY, ENTRYPOINT, ROOT, Fake, fake_program, run, surroundings

SECRET = "a-token-nobody-should-read"
NOT_OF_A_SERVER = {
    # of clients and the command line
    *("OMNIGRAPH_BEARER_TOKEN", "OMNIGRAPH_HOME", "OMNIGRAPH_PROFILE"),
    *("OMNIGRAPH_TOKEN_", "OMNIGRAPH_TOKEN_PROD_EU"),
    # of notebooks
    "OMNIGRAPH_FULL_TRACEBACK",
    # of bulk loads, which a server does not run
    *("OMNIGRAPH_ENGINE", "OMNIGRAPH_SPARK_CONF_"),
    *("OMNIGRAPH_SPARK_MASTER", "OMNIGRAPH_SPARK_THRESHOLD_BYTES"),
    "OMNIGRAPH_SPARK_THRESHOLD_ROWS",
    # of `embed`, which fills the vectors of stored nodes where the storage is
    *("OMNIGRAPH_EMBED_BATCH_TEXTS", "OMNIGRAPH_EMBED_CONCURRENCY"),
    *("OMNIGRAPH_EMBED_REQUESTS_PER_SECOND", "OMNIGRAPH_EMBED_TEXTS_PER_SECOND"),
    # what a server prints, and what the entrypoint refuses
    *("OMNIGRAPH_LISTEN_ADDR", "OMNIGRAPH_FAILPOINTS"),
}
OF_THE_ENTRYPOINT = {
    *("OMNIGRAPH_ACCEPT", "OMNIGRAPH_GRAPH_ID", "OMNIGRAPH_INIT_SCHEMA", "OMNIGRAPH_LOG_FORMAT"),
    *("OMNIGRAPH_POLICY", "OMNIGRAPH_QUERIES", "OMNIGRAPH_SERVER_POLICY", "OMNIGRAPH_STORE"),
}


def test_variables_become_the_arguments_of_one_server(fake: Fake, settings: dict[str, str]):
    more = {
        "OMNIGRAPH_GRAPH_ID": "team",
        "OMNIGRAPH_POLICY": "policy with blanks.yaml",
        "OMNIGRAPH_SERVER_POLICY": "$HOME/server.yaml",
        "OMNIGRAPH_LOG_FORMAT": "json",
        "OMNIGRAPH_QUERIES": "people.gq, folder/",
    }
    done = run(str(fake.folder), settings | more)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert fake.commands == [
        [
            "serve",
            f"--store={settings['OMNIGRAPH_STORE']}",
            "--graph-id=team",
            "--policy=policy with blanks.yaml",
            "--server-policy=$HOME/server.yaml",
            "--log-format=json",
            "--queries=people.gq",
            "--queries=folder/",
        ]
    ]


def test_what_the_server_reads_itself_reaches_it_unchanged(fake: Fake, settings: dict[str, str]):
    more = {
        "OMNIGRAPH_BIND": "0.0.0.0:9000",
        "OMNIGRAPH_CORS_ORIGINS": "https://a.example,https://b.example",
        "OMNIGRAPH_METRICS": "1",
        "OMNIGRAPH_SHUTDOWN_TIMEOUT": "5",
        "OMNIGRAPH_CACHE_BYTES": "1000000",
    }
    run(str(fake.folder), settings | more)
    (call,) = fake.calls
    assert call["argv"] == ["serve", f"--store={settings['OMNIGRAPH_STORE']}"]
    assert more.items() <= call["environment"].items()


def test_a_blank_variable_is_none(fake: Fake, settings: dict[str, str]):
    blank = {"OMNIGRAPH_POLICY": "", "OMNIGRAPH_INIT_SCHEMA": " ", "OMNIGRAPH_STOER": ""}
    assert run(str(fake.folder), settings | blank).returncode == 0
    assert fake.commands == [["serve", f"--store={settings['OMNIGRAPH_STORE']}"]]


def test_no_value_can_pass_for_a_flag(fake: Fake, settings: dict[str, str]):
    run(str(fake.folder), settings | {"OMNIGRAPH_GRAPH_ID": "--unauthenticated"})
    assert fake.commands[0][2:] == ["--graph-id=--unauthenticated"]


def test_every_flag_is_one_of_the_server():
    page = all_pages(root_command())["omnigraph serve"]
    for flag in (*entrypoint.FLAGS.values(), "--queries"):
        assert f"{flag} " in page, flag


def test_the_entrypoint_knows_every_variable_of_the_code():
    """A new variable belongs into `SETTINGS` of the entrypoint, or into a list above."""
    sources = (ROOT / "src").rglob("*.py")
    read = {
        name
        for path in sources
        for name in re.findall(r"\bOMNIGRAPH_[A-Z0-9_]+", path.read_text(encoding="utf-8"))
    }
    assert read - NOT_OF_A_SERVER - OF_THE_ENTRYPOINT == entrypoint.SETTINGS - OF_THE_ENTRYPOINT
    assert OF_THE_ENTRYPOINT <= entrypoint.SETTINGS


def test_the_entrypoint_and_the_server_agree():
    assert entrypoint.DEFAULT_BIND == config.DEFAULT_BIND
    assert set(entrypoint.TOKEN_SOURCES) == {
        *(auth.ONE_TOKEN, auth.TOKENS_FILE, auth.TOKENS_JSON, auth.TOKENS_AWS_SECRET)
    }


def test_the_entrypoint_needs_the_standard_library_alone():
    text = ENTRYPOINT.read_text(encoding="utf-8")
    imported = set(re.findall(r"^(?:import|from) (\w+)", text, re.MULTILINE))
    assert imported - {"__future__"} <= set(sys.stdlib_module_names)
    assert os.access(DEPLOY / "entrypoint.py", os.X_OK)


REFUSALS = [
    pytest.param({"OMNIGRAPH_STORE": ""}, "what to serve", "OMNIGRAPH_STORE", id="no store"),
    pytest.param(
        {"OMNIGRAPH_SERVER_BEARER_TOKENS_FILE": "", "OMNIGRAPH_BIND": "0.0.0.0:8080"},
        "no tokens",
        "OMNIGRAPH_SERVER_BEARER_TOKENS_FILE",
        id="no tokens",
    ),
    *(
        pytest.param(
            {"OMNIGRAPH_UNAUTHENTICATED": "1", "OMNIGRAPH_BIND": bind},
            f"listen on {bind}",
            "unset OMNIGRAPH_UNAUTHENTICATED",
            id=f"open {bind}",
        )
        # Also with tokens: the file could have none in it.
        for bind in ("0.0.0.0:8080", "[::]:8080", "10.1.2.3:80", "graphs.example:80", ":80")
    ),
    pytest.param(
        {"OMNIGRAPH_SERVER_BEARER_TOKENS_FILE": "absent.json"},
        "cannot be read: no such file",
        "may read",
        id="absent tokens",
    ),
    pytest.param({"OMNIGRAPH_FAILPOINTS": "x=kill"}, "die on purpose", "unset it", id="failpoints"),
    pytest.param(
        {"OMNIGRAPH_ACCEPT": "everything"}, "names 'everything'", "open-network", id="accepts"
    ),
    pytest.param({"OMNIGRAPH_STORE": "absent.omni"}, "no graph at", "INIT_SCHEMA", id="no graph"),
    pytest.param(
        {"OMNIGRAPH_STORE": "", "OMNIGRAPH_INIT_SCHEMA": "s.pg", "OMNIGRAPH_CLUSTER": "c"},
        "INIT_SCHEMA is set without OMNIGRAPH_STORE",
        "unset it",
        id="schema without a store",
    ),
    pytest.param(
        {"AWS_ACCESS_KEY_ID": "k", "AWS_ACCESS_KEY_ID_FILE": "absent"},
        "both AWS_ACCESS_KEY_ID_FILE and AWS_ACCESS_KEY_ID",
        "unset one",
        id="two keys",
    ),
]


@pytest.mark.parametrize(("changed", "told", "fix"), REFUSALS)
def test_unsafe_settings_are_refused_with_the_fix(
    fake: Fake,
    settings: dict[str, str],
    tmp_path: Path,
    changed: dict[str, str],
    told: str,
    fix: str,
):
    done = run(str(fake.folder), settings | changed, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    errors = re.findall(r"^error: (.*)\nhint: (.*)$", done.stderr, re.MULTILINE)
    assert any(told in error and fix in hint for error, hint in errors), done.stderr
    assert fake.calls == []


@pytest.mark.parametrize(
    ("bind", "accepted"),
    [("127.0.0.1:0", ""), ("localhost:80", ""), ("[::1]:80", ""), ("0.0.0.0:80", "open-network")],
)
def test_an_open_server_is_for_loopback_or_for_who_says_so(
    fake: Fake, settings: dict[str, str], bind: str, accepted: str
):
    opened = {"OMNIGRAPH_UNAUTHENTICATED": "1", "OMNIGRAPH_SERVER_BEARER_TOKENS_FILE": ""}
    more = opened | {"OMNIGRAPH_BIND": bind, "OMNIGRAPH_ACCEPT": accepted}
    assert run(str(fake.folder), settings | more).returncode == 0
    assert len(fake.calls) == 1


@pytest.mark.parametrize("mode", [0o444, 0o604, 0o420, 0o402, 0o666])
def test_a_file_of_tokens_that_is_open_to_others_is_refused(
    fake: Fake, settings: dict[str, str], tokens: Path, mode: int
):
    tokens.chmod(mode)
    done = run(str(fake.folder), settings)
    assert done.returncode == 2 and fake.calls == []
    assert f"its mode is {mode:04o}" in done.stderr and f"chmod 400 {tokens}" in done.stderr
    assert "token-of-ana" not in done.stderr


@pytest.mark.parametrize("mode", [0o400, 0o600, 0o440])
def test_a_file_of_tokens_may_be_read_by_its_owner_and_its_group(
    fake: Fake, settings: dict[str, str], tokens: Path, mode: int
):
    tokens.chmod(mode)
    assert run(str(fake.folder), settings).returncode == 0


def test_an_empty_file_of_tokens_is_refused(fake: Fake, settings: dict[str, str], tokens: Path):
    tokens.chmod(0o600)
    tokens.write_text("\n")
    done = run(str(fake.folder), settings)
    assert done.returncode == 2 and "is empty" in done.stderr and fake.calls == []


def test_tokens_of_the_environment_are_shown_nowhere(fake: Fake, settings: dict[str, str]):
    more = {
        "OMNIGRAPH_SERVER_BEARER_TOKEN": SECRET,
        "OMNIGRAPH_SERVER_BEARER_TOKENS_JSON": f'{{"act-bo": "{SECRET}2"}}',
        "AWS_SECRET_ACCESS_KEY": SECRET,
    }
    fine = run(str(fake.folder), settings | more)
    assert fine.returncode == 0
    refused = run(str(fake.folder), settings | more | {"OMNIGRAPH_STOER": SECRET})
    assert refused.returncode == 2
    shown = fine.stdout + fine.stderr + refused.stdout + refused.stderr + str(fake.commands)
    assert SECRET not in shown


def test_keys_in_files_reach_the_server_and_no_argument(
    fake: Fake, settings: dict[str, str], tmp_path: Path
):
    more = {}
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        path = tmp_path / name
        path.write_text(f"{SECRET}-{name}\n")
        path.chmod(0o400)
        more[f"{name}_FILE"] = str(path)
    assert run(str(fake.folder), settings | more).returncode == 0
    (call,) = fake.calls
    assert call["environment"]["AWS_ACCESS_KEY_ID"] == f"{SECRET}-AWS_ACCESS_KEY_ID"
    assert call["environment"]["AWS_SECRET_ACCESS_KEY"] == f"{SECRET}-AWS_SECRET_ACCESS_KEY"
    assert SECRET not in str(call["argv"])


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("OMNIGRAPH_STOER", "OMNIGRAPH_STORE"),
        ("OMNIGRAPH_QUERY", "OMNIGRAPH_QUERIES"),
        ("OMNIGRAPH_TOKENS_FILE", "OMNIGRAPH_SERVER_BEARER_TOKENS_FILE"),
        ("OMNIGRAPH_SERVER_BEARER_TOKEN_FILE", "OMNIGRAPH_SERVER_BEARER_TOKENS_FILE"),
        ("OMNIGRAPH_BEARER_TOKEN", "OMNIGRAPH_SERVER_BEARER_TOKEN"),
        ("OMNIGRAPH_UNAUTHENTICATE", "OMNIGRAPH_UNAUTHENTICATED"),
        ("OMNIGRAPH_CORS_ORIGIN", "OMNIGRAPH_CORS_ORIGINS"),
    ],
)
def test_a_misspelt_setting_is_refused_with_the_right_one(
    fake: Fake, settings: dict[str, str], wrong: str, right: str
):
    done = run(str(fake.folder), settings | {wrong: SECRET})
    assert done.returncode == 2 and fake.calls == []
    assert f"error: {wrong} is no setting\nhint: did you mean {right}?" in done.stderr
    assert SECRET not in done.stderr


def test_a_name_that_resembles_nothing_is_told_and_does_no_harm(
    fake: Fake, settings: dict[str, str]
):
    done = run(str(fake.folder), settings | {"OMNIGRAPH_GIT_SHA": "abc"})
    assert done.returncode == 0 and len(fake.calls) == 1
    assert done.stderr == "warning: OMNIGRAPH_GIT_SHA is no setting of a server and is not read\n"


def test_what_kubernetes_sets_for_a_service_of_that_name_is_no_setting(
    fake: Fake, settings: dict[str, str]
):
    links = {
        "OMNIGRAPH_SERVICE_HOST": "10.0.0.1",
        "OMNIGRAPH_SERVICE_PORT": "8080",
        "OMNIGRAPH_SERVICE_PORT_HTTP": "8080",
        "OMNIGRAPH_PORT": "tcp://10.0.0.1:8080",
        "OMNIGRAPH_PORT_8080_TCP_ADDR": "10.0.0.1",
        "OMNIGRAPH_METRICS_SERVICE_HOST": "10.0.0.2",
    }
    done = run(str(fake.folder), settings | links)
    assert (done.returncode, done.stderr) == (0, "")
    done = run(str(fake.folder), settings | {"OMNIGRAPH_PORT": "9000"})
    assert "OMNIGRAPH_PORT is no setting" in done.stderr


def test_arguments_are_refused_because_they_could_undo_the_checks(
    fake: Fake, settings: dict[str, str]
):
    done = run(str(fake.folder), settings, "--bind", "0.0.0.0:80", "--unauthenticated")
    assert done.returncode == 2 and "not from arguments" in done.stderr and fake.calls == []


def test_root_has_to_be_said(fake: Fake, settings: dict[str, str]):
    told = [each.error for each in entrypoint.problems(settings, [], user=0)]
    assert len(told) == 1 and "root" in told[0]
    assert list(entrypoint.problems(settings | {"OMNIGRAPH_ACCEPT": "root"}, [], user=0)) == []
    assert list(entrypoint.problems(settings, [], user=1000)) == []
    silent = surroundings(str(fake.folder), settings)
    silent.pop("OMNIGRAPH_ACCEPT", None)
    done = subprocess.run(
        [sys.executable, str(ENTRYPOINT)], env=silent, capture_output=True, check=False
    )
    assert done.returncode == (2 if os.geteuid() == 0 else 0)


AS_NOBODY = """
import os, sys
from deploy import entrypoint
if os.geteuid() == 0:
    os.setgroups([]), os.setgid(65534), os.setuid(65534)
sys.exit(entrypoint.main([]))
"""


def test_a_store_that_cannot_be_written_is_refused(fake: Fake, settings: dict[str, str]):
    Path(settings["OMNIGRAPH_STORE"]).chmod(0o555)
    opened = {"OMNIGRAPH_UNAUTHENTICATED": "1", "OMNIGRAPH_SERVER_BEARER_TOKENS_FILE": ""}
    done = subprocess.run(
        [sys.executable, "-c", AS_NOBODY],
        env=surroundings(str(fake.folder), settings | opened),
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert done.returncode == 2, done.stderr
    assert "cannot be written: permission denied" in done.stderr
    assert "mount it for writing" in done.stderr
    assert fake.calls == []


def test_a_store_below_a_file_is_refused(fake: Fake, settings: dict[str, str], tmp_path: Path):
    (tmp_path / "file").write_text("")
    more = {"OMNIGRAPH_STORE": f"file://{tmp_path}/file/g.omni", "OMNIGRAPH_INIT_SCHEMA": "s.pg"}
    done = run(str(fake.folder), settings | more)
    assert done.returncode == 2 and "cannot be written: not a directory" in done.stderr


def test_looking_whether_a_store_can_be_written_leaves_nothing(
    fake: Fake, settings: dict[str, str]
):
    run(str(fake.folder), settings)
    assert list(Path(settings["OMNIGRAPH_STORE"]).iterdir()) == []


def test_a_new_store_begins_with_the_schema(fake: Fake, settings: dict[str, str], tmp_path: Path):
    store = str(tmp_path / "new" / "team.omni")
    more = {"OMNIGRAPH_STORE": store, "OMNIGRAPH_INIT_SCHEMA": "team.pg"}
    done = run(str(fake.folder), settings | more)
    assert done.stderr == f"created a graph at {store}\n"
    assert fake.commands == [
        ["init", "--json", "--schema=team.pg", "--", store],
        ["serve", f"--store={store}"],
    ]


def test_a_store_that_is_there_is_served_as_it_is(tmp_path: Path, settings: dict[str, str]):
    fake = fake_program(tmp_path / "programs", {"code": "conflict", "error": "…"})
    done = run(str(fake.folder), settings | {"OMNIGRAPH_INIT_SCHEMA": "team.pg"})
    assert done.returncode == 0 and "was not applied" in done.stderr
    assert [command[0] for command in fake.commands] == ["init", "serve"]


@pytest.mark.parametrize("answer", [{"code": "storage"}, ["no code"], "nonsense"])
def test_a_graph_that_cannot_be_created_is_not_served(
    tmp_path: Path, settings: dict[str, str], answer: object
):
    fake = fake_program(tmp_path / "programs", answer)
    done = run(str(fake.folder), settings | {"OMNIGRAPH_INIT_SCHEMA": "team.pg"})
    assert (done.returncode, done.stderr) == (1, "error: what init says\n")
    assert [command[0] for command in fake.commands] == ["init"]


def test_a_missing_program_is_told(settings: dict[str, str], tmp_path: Path):
    done = run(str(tmp_path), settings)
    assert done.returncode == 2 and "no program `omnigraph`" in done.stderr


def test_a_port_that_is_not_listened_on_is_not_ready():
    assert run("", {"OMNIGRAPH_BIND": "127.0.0.1:1"}, "--ready").returncode == 1
    assert run("", {"OMNIGRAPH_BIND": "nonsense"}, "--ready").returncode == 1
