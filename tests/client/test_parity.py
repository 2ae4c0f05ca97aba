"""C-CLI-048: every command that a server offers does the same with `--store` and with `--server`.

Reads run on one graph and print the same. Writes run on two copies of a graph; what they
print differs in ids, clocks and places only.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from omnigraph.cli.main import main, root_command
from omnigraph.cli.options import GlobalFlag
from omnigraph.graph import init, open_graph
from omnigraph.server.config import GraphSpec
from tests.server.live import ADD, NOTHING, PEOPLE, RECORDS, SCHEMA, serving
from tests.support.templates import copy_of, place_in

WITHOUT_TWIN = {
    "mcp": "is a server itself; tests/mcp runs it over both",
    "shell": "takes inputs and not flags; tests/cli/test_shell.py runs it over both",
    "use": "keeps what the flags say, and opens nothing",
    "config show": "shows what the flags mean, and opens nothing",
}
BELOW = {"review check": "whose checks are files of the caller, or of the server"}
"""Compared by a test of its own."""

STALE = "01K3Z7M0Q8W4R6T2Y5V9B1N3XC"
AGE = 'query q($a: I32) { update Person set { age: $a } where name = "ada" }'
WRONG = "query q { match { $p: Persom } return { $p.name } }"
PHOTO = ["node", "Person", "ada", "photo"]

READS: dict[str, list[list[str]]] = {
    "query": [
        ["-e", PEOPLE],
        ["-e", PEOPLE, "--branch", "review"],
        ["-e", PEOPLE, "--snapshot", "{commit}"],
        ["-e", PEOPLE, "--format", "csv"],
        ["-e", PEOPLE, "--format", "jsonl"],
        ["-e", "query none { match { $p: Person  $p.age > 99 } return { $p.name } }"],
        ["-e", WRONG],
        ["-e", "query q {"],
        ["-e", "query q($n: String) { match { $p: Person { name: $n } } return { $p.age } }"],
        ["-e", PEOPLE, "--branch", "none"],
        ["-e", PEOPLE, "--snapshot", STALE],
        ["-e", PEOPLE + WRONG.replace("query q", "query r")],
    ],
    "stats": [[], ["--branch", "review"], ["--branch", "none"]],
    "snapshot": [[], ["--branch", "review"], ["--branch", "none"]],
    "export": [
        [],
        ["--type", "City"],
        ["--type", "None"],
        ["--branch", "review"],
        ["--snapshot", "{commit}"],
        ["--format", "csv"],
    ],
    "schema show": [[]],
    "branch list": [[]],
    "branch diff": [
        ["main", "review"],
        ["main", "clash", "--direct"],
        ["{genesis}", "clash", "--type", "Person", "--op", "insert", "--limit", "1"],
        ["main", "none"],
    ],
    "commit list": [
        [],
        ["--branch", "review"],
        ["--filter", "actor=nobody"],
        ["--entity", "Person:ada"],
        ["--entity", "Persom:ada"],
    ],
    "commit show": [["{commit}"], [STALE], ["nonsense"], ["HEAD~1"], ["review~1"], ["main~99"]],
    "tag list": [[]],
    "commit changes": [
        ["{commit}"],
        ["{commit}", "--type", "City"],
        ["{commit}", "--limit", "1"],
        ["{genesis}"],
        [STALE],
        ["{commit}", "--page-token", "bad"],
    ],
    "changes poll": [
        ["--start", "beginning"],
        ["--start", "beginning", "--kind", "edge"],
        [],
        ["--cursor", "bad"],
        ["--start", "beginning", "--limit", "0"],
    ],
    "changes baseline": [["--out", "{out}"], ["--out", "{out}", "--branch", "none"]],
    "blob get": [
        PHOTO,
        [*PHOTO, "--offset", "2", "--length", "3"],
        [*PHOTO, "--offset", "99"],
        ["node", "Person", "bo", "photo"],
        ["node", "Person", "ada", "age"],
    ],
    "blob stat": [PHOTO, ["node", "Person", "bo", "photo"], ["node", "Person", "ada", "age"]],
    "review list": [[], ["--state", "all"], ["--state", "merged"], ["--state", "new"]],
    "review show": [["{request}"], ["cr-none"]],
    "review diff": [["{request}"], ["{request}", "--type", "City"], ["cr-none"]],
    "review export": [[]],
}
"""Of every command that reads: arguments that work, and some that do not."""

WRITES: dict[str, list[list[str]]] = {
    "mutate": [
        ["-e", ADD, "--params", '{"name": "cy"}'],
        ["-e", ADD, "--params", '{"name": "di"}', "--branch", "review"],
        ["-e", NOTHING],
        ["-e", ADD, "--params", '{"name": "cy"}', "--if-commit", "{head}"],
        ["-e", ADD, "--params", '{"name": "cy"}', "--if-commit", STALE],
        ["-e", ADD],
        ["-e", ADD, "--params", '{"name": 7}'],
        ["-e", ADD, "--params", '{"name": "cy"}', "--branch", "none"],
        ["-e", WRONG],
    ],
    "load": [
        ["--data", "{more}", "--mode", "append"],
        ["--data", "{more}", "--mode", "append", "--dry-run"],
        ["--data", "{more}", "--mode", "append", "--idempotency-key", "k", "--message", "why"],
        ["--data", "{more}", "--mode", "merge", "--branch", "new", "--from", "main"],
        ["--data", "{more}", "--mode", "merge", "--branch", "none"],
        ["--data", "{more}", "--mode", "append", "--map", "Person:upper(name)=name"],
        ["--data", "{more}", "--mode", "append", "--map", "Person:name=nme"],
        ["--data", "{again}", "--mode", "append"],
        ["--data", "{broken}", "--mode", "append"],
        ["--data", "{more}", "--mode", "overwrite", "--yes"],
        ["--data", "{none}", "--mode", "append"],
        ["--data", "{more}"],
    ],
    "branch create": [
        ["new"],
        ["new", "--from", "review"],
        ["new", "--from", "review~1"],
        ["review"],
        ["new", "--from", "none"],
    ],
    "tag create": [["v1"], ["v1", "HEAD~1"], ["v1", "--branch", "review"], ["main"], ["2026"]],
    "tag delete": [["none", "--yes"]],
    "branch delete": [["review", "--yes"], ["none", "--yes"], ["main", "--yes"]],
    "branch merge": [
        ["review"],
        ["review", "--delete-branch"],
        ["clash"],
        ["none"],
        ["main", "--into", "review"],
        ["clash", "--dry-run"],
        ["clash", "--on-conflict", "source"],
        ["clash", "--on-conflict", "Person=target", "--granularity", "property"],
    ],
    "branch cherry-pick": [
        ["{reviewed}"],
        ["{reviewed}", "--dry-run"],
        ["{reviewed}", "--into", "clash"],
        ["{clashed}"],
        [STALE],
    ],
    "commit revert": [["{commit}"], ["{commit}", "--dry-run"], ["{reviewed}"], [STALE]],
    "schema apply": [["--schema", "{wider}"], ["--schema", "{same}"], ["--schema", "{bad}"]],
    "schema rebase": [["review"], ["review", "--dry-run"], ["main"], ["none"]],
    "review open": [
        ["clash", "--title", "Ages", "--description", "why"],
        ["review", "--into", "clash"],
        ["none"],
        ["main"],
        ["clash", "--title", "x" * 300],
    ],
    "review edit": [["{request}", "--title", "Others"], ["{request}"], ["cr-none", "--title", "x"]],
    "review comment": [
        ["{request}", "Who?"],
        ["{request}", "Her age?", "--type", "Person", "--entity", "ada", "--property", "age"],
        ["{request}", "Yes", "--reply-to", "{comment}"],
        ["{request}", "What?", "--type", "Persom"],
        ["{request}", "x" * 30_000],
    ],
    "review resolve": [["{request}", "{comment}"], ["{request}", STALE]],
    "review approve": [["{request}"], ["{request}", "--text", "fine"], ["cr-none"]],
    "review request-changes": [["{request}", "--text", "no"], ["cr-none"]],
    "review merge": [
        ["{request}"],
        ["{request}", "--delete-branch", "--message", "why"],
        ["cr-none"],
    ],
    "review close": [["{request}"], ["cr-none"]],
    "review reopen": [["{request}"], ["cr-none"]],
}
"""Of every command that writes, the same."""

OWN_WORDS = {"blob get", "blob stat", "load"}
"""Whose errors are told in other words: answers to HEAD have none, and a server knows no files."""

LOCATION_KEYS = {
    "uri",
    "file",
    "created_at",
    "opened_at",
    "updated_at",
    "authored_at",
    "seconds",
    "graph_manifest_version",
}


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str


Run = Callable[..., Outcome]


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Run a command line here, without anybody's settings."""
    monkeypatch.setenv("OMNIGRAPH_HOME", str(tmp_path / "home"))
    for name in ("OMNIGRAPH_PROFILE", "OMNIGRAPH_BEARER_TOKEN"):
        monkeypatch.delenv(name, raising=False)

    def call(*arguments: str) -> Outcome:
        capfd.readouterr()
        code = main(list(arguments))
        out, err = capfd.readouterr()
        return Outcome(code, out, err)

    return call


@dataclass
class Side:
    """One way to address one graph."""

    address: list[str]
    names: dict[str, str]

    def arguments(self, command: str, given: list[str]) -> list[str]:
        filled = [self.names.get(word[1:-1], word) for word in given]
        return [*command.split(), *filled, *self.address]


@dataclass
class Sides:
    stored: Side
    served: Side
    reads_served_graph: Side
    """The served graph by its storage."""


def seed(root: Path) -> None:
    """A graph with branches and a few commits."""
    graph = init(str(root), SCHEMA)
    graph.load(data=RECORDS, mode="append", engine="local")
    photo = 'query q($d: Blob) { update Person set { photo: $d } where name = "ada" }'
    graph.mutate(photo, {"d": b"0123456789"})
    graph.mutate(ADD, {"name": "cy0"})
    for branch in ("review", "clash"):
        graph.create_branch(branch)
    graph.mutate(ADD, {"name": "on-review"}, branch="review")
    graph.mutate(AGE, {"a": 1}, branch="clash")
    graph.mutate(AGE, {"a": 2})
    request = graph.reviews.open("review", title="People", actor="act-ana")
    graph.reviews.comment(request.id, "Who is that?", actor="act-bo")


def seeded(root: Path, files: dict[str, str]) -> dict[str, str]:
    """Put that graph at ``root``; the words that stand for its commits and files."""
    copy_of(seed, root)
    graph = open_graph(root)
    head, commit, *_, genesis = graph.list_commits()
    words = {"commit": commit, "head": head, "genesis": genesis}
    words |= {"reviewed": graph.list_commits("review")[0]}
    words |= {"clashed": graph.list_commits("clash")[0]}
    (request,) = graph.reviews.list()
    (comment,) = graph.reviews.get(request.id).comments
    of_review = {"request": request.id, "comment": comment.id}
    return {word: each.graph_commit_id for word, each in words.items()} | of_review | files


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    texts = {
        "more.jsonl": '{"type": "Person", "data": {"name": "x", "age": 1}}\n',
        "again.jsonl": '{"type": "Person", "data": {"name": "ada"}}\n',
        "broken.jsonl": '{"type": "Person", "data": {"name": 7}}\n',
        "wider.pg": SCHEMA + "node Pet { name: String @key }\n",
        "same.pg": SCHEMA,
        "bad.pg": "node {",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    names = {name.partition(".")[0]: str(tmp_path / name) for name in texts}
    return names | {"none": str(tmp_path / "none.jsonl"), "out": str(tmp_path / "out.jsonl")}


@pytest.fixture
def sides(tmp_path: Path, files: dict[str, str]) -> Iterator[Sides]:
    left, right = place_in(tmp_path, "left"), place_in(tmp_path, "right")
    of_left, of_right = seeded(left, files), seeded(right, files)
    with serving(GraphSpec("team", str(right))) as live:
        served = Side(["--server", live.url, "--graph", "team"], of_right)
        by_storage = Side(["--store", str(right)], of_right)
        yield Sides(Side(["--store", str(left)], of_left), served, by_storage)


def served_commands() -> set[str]:
    root = root_command()
    both = {GlobalFlag.SERVER, GlobalFlag.STORE}
    return {leaf.name for leaf in root.leaves(None) if both <= root.called(leaf.name).takes}


def test_c_cli_048_no_command_is_forgotten():
    assert served_commands() - WITHOUT_TWIN.keys() - BELOW.keys() == READS.keys() | WRITES.keys()


@pytest.mark.parametrize("command", READS)
def test_c_cli_048_a_read_prints_the_same_served_and_stored(
    run: Run, sides: Sides, command: str, tmp_path: Path
):
    out = tmp_path / "out.jsonl"
    for given in READS[command]:
        for shape in ([], ["--json"]):
            if shape and "--format" in given:
                continue
            outcomes, files = [], []
            for side in (sides.reads_served_graph, sides.served):
                out.unlink(missing_ok=True)
                outcomes.append(run(*side.arguments(command, given), *shape))
                files.append(out.read_bytes() if out.exists() else None)
            stored, served = outcomes
            context = (given, shape, stored.err, served.err)
            assert served.code == stored.code, context
            assert files[0] == files[1], context
            if stored.code == 0:
                assert _located(served.out, command) == _located(stored.out, command), context
            else:
                assert _envelope(served.out, command) == _envelope(stored.out, command), context


@pytest.mark.parametrize(
    ("command", "given"),
    [(command, given) for command, cases in WRITES.items() for given in cases],
    ids=lambda value: value if isinstance(value, str) else "-".join(map(str, value))[:40],
)
def test_c_cli_048_a_write_does_the_same_served_and_stored(
    run: Run, sides: Sides, command: str, given: list[str]
):
    outcomes = [
        run(*side.arguments(command, given), "--json") for side in (sides.stored, sides.served)
    ]
    stored, served = outcomes
    context = (stored.err, served.err)
    assert served.code == stored.code, context
    if stored.code == 0:
        assert _leveled(json.loads(served.out)) == _leveled(json.loads(stored.out)), context
    else:
        assert _envelope(served.out, command) == _envelope(stored.out, command), context
    exports = [
        run(*side.arguments("export", [])).out for side in (sides.stored, sides.reads_served_graph)
    ]
    assert _without_edge_ids(exports[0]) == _without_edge_ids(exports[1])
    branches = [
        run(*side.arguments("branch list", [])).out
        for side in (sides.stored, sides.reads_served_graph)
    ]
    assert branches[0] == branches[1]


def test_c_cli_048_checks_of_a_review_end_the_same_served_and_stored(
    run: Run, tmp_path: Path, files: dict[str, str]
):
    queries = tmp_path / "queries"
    queries.mkdir()
    (queries / "all.gq").write_text(PEOPLE)
    (queries / "checks.yaml").write_text(
        "checks: [{ name: none, query: people }, { name: some, query: people, expect: nonempty }]"
    )
    left, right = place_in(tmp_path, "left"), place_in(tmp_path, "right")
    stored = Side(["--store", str(left), "--checks", str(queries)], seeded(left, files))
    words = seeded(right, files)
    with serving(GraphSpec("team", str(right), (queries,))) as live:
        served = Side(["--server", live.url, "--graph", "team"], words)
        outcomes = [
            run(*side.arguments("review check", ["{request}"]), "--json")
            for side in (stored, served)
        ]
        refused = run(*served.arguments("review check", ["{request}", "--checks", str(queries)]))
    assert [each.code for each in outcomes] == [1, 1]
    found = [_leveled(json.loads(each.out)) for each in outcomes]
    assert found[0] == found[1] and len(found[0]["checks"]) == 2
    assert refused.code == 2 and "--checks" in refused.err


def test_c_cli_011_as_on_a_served_write_is_refused(run: Run, sides: Sides):
    for command, cases in WRITES.items():
        done = run(*sides.served.arguments(command, cases[0]), "--as", "act-ana")
        assert (done.code, done.out) == (2, ""), command
        assert "a server knows who writes" in done.err


def test_text_output_of_writes_is_the_same_served_and_stored(run: Run, sides: Sides):
    for command, given in (
        ("mutate", WRITES["mutate"][0]),
        ("load", WRITES["load"][0]),
        ("branch create", ["new"]),
        ("branch delete", ["clash", "--yes"]),
    ):
        stored, served = (
            _ids_hidden(run(*side.arguments(command, given)).out)
            for side in (sides.stored, sides.served)
        )
        assert served == stored


# --- comparing ------------------------------------------------------------------------------------


def _located(text: str, command: str) -> Any:
    """What was printed; `stats` also says where the graph is, and a server its name alone."""
    if command != "stats":
        return text
    text = re.sub(r"(omnigraph \w+ --store) [^\s\"]+", r"\1 GRAPH", text)
    return _leveled(json.loads(text)) if text.startswith("{") else text


def _envelope(text: str, command: str) -> Any:
    """What was printed of an error; hints are in the words of each face."""
    if not text:
        return text
    own = {"hint", "error"} if command in OWN_WORDS else {"hint"}
    return _leveled({name: value for name, value in json.loads(text).items() if name not in own})


def _leveled(value: Any) -> Any:
    """The same without what may differ."""
    match value:
        case dict():
            return {
                name: "…" if name in LOCATION_KEYS else _leveled(inner)
                for name, inner in value.items()
            }
        case list():
            return [_leveled(inner) for inner in value]
        case str():
            return _ids_hidden(value)
    return value


def _ids_hidden(text: str) -> str:
    return re.sub(r"\b[0-9A-HJKMNP-TV-Z]{26}\b", "ID", text)


def _without_edge_ids(text: str) -> list[str]:
    return sorted(_ids_hidden(line) for line in text.splitlines())
