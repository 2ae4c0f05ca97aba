"""Help pages and global flags."""

from __future__ import annotations

import re
import shlex

import pytest

from omnigraph.cli.help import LEGEND, Capability, all_pages
from omnigraph.cli.main import root_command
from omnigraph.cli.output import Output

PAGES = all_pages(root_command())


def commands() -> list[str]:
    """Every command by its full name, in the order of the help page."""
    return [leaf.name for leaf in root_command().leaves(None)]


def test_c_cli_002_help_orders_by_capability_and_ends_with_the_legend(run):
    page = run("--help").out
    listed = page[page.index("Commands:") : page.index("Global flags")]
    assert re.findall(r"^  ([\w-]+(?: [\w-]+)?)  ", listed, re.MULTILINE) == commands()
    legend = page[page.index(LEGEND) :].splitlines()
    assert legend[0] == "COMMANDS BY CAPABILITY"
    shown = [line.split()[0] for line in legend[1:] if not line.startswith("   ")]
    assert shown == [c.panel for c in Capability if c.panel in shown]
    text = " ".join(line.strip() for line in legend[1:])
    listed = re.split(r" ?\b(?:any|served|direct|control|local)  [^:]*: ", text)[1:]
    assert [name for part in listed for name in part.split(", ")] == commands()
    assert "ingest" not in page


def test_without_arguments_help_is_shown(run):
    bare = run()
    assert bare.code == 0
    assert bare.out == run("--help").out
    assert bare.err == ""


def test_both_spellings_of_help_work_everywhere(run):
    for name in PAGES:
        words = name.split()[1:]
        long, short = run(*words, "--help"), run(*words, "-h")
        assert long == short
        assert long.code == 0
        assert long.out == PAGES[name] + "\n"


def test_every_page_says_what_the_command_does_how_to_call_it_and_an_example():
    for name, page in PAGES.items():
        assert f"Usage: {name}" in page
        assert "Examples:" in page


def test_pages_fit_a_terminal_except_for_examples_to_copy():
    for page in PAGES.values():
        for line in page.splitlines():
            assert len(line) <= 80 or line.startswith("  omnigraph ")


def test_examples_of_the_pages_run_where_their_files_exist(run):
    examples = {
        line.strip()
        for page in PAGES.values()
        for line in page.splitlines()
        if line.startswith("  omnigraph ") and "examples/" in line
    }
    assert len(examples) >= 3
    for example in examples:
        assert run(*shlex.split(example)[1:]).code == 0, example


def test_help_uses_the_width_of_a_terminal_up_to_a_limit(monkeypatch: pytest.MonkeyPatch):
    class Terminal:
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    output = Output(terminal, terminal)  # type: ignore[arg-type]
    monkeypatch.setenv("COLUMNS", "60")
    assert output.width == 60
    monkeypatch.setenv("COLUMNS", "400")
    assert output.width == 100


# --- global flags ---------------------------------------------------------------------------------

LINT = ["lint", "--schema", "examples/social/schema.pg", "--query", "examples/social/queries.gq"]


@pytest.mark.parametrize(
    "flags", [["--quiet"], ["--color", "always"], ["--color=always"], ["--debug"]]
)
def test_c_cli_003_global_flags_work_before_and_after_the_command(run, flags):
    before = run(*flags, *LINT)
    after = run(*LINT, *flags)
    between = run(LINT[0], *flags, *LINT[1:])
    assert before == after == between
    assert before.code == 0


def test_c_cli_003_global_flags_work_around_a_nested_command(run):
    plain = run("schema", "check", "examples/social/schema.pg", "--color", "always")
    assert plain == run("schema", "--color", "always", "check", "examples/social/schema.pg")
    assert plain == run("--color", "always", "schema", "check", "examples/social/schema.pg")
    assert "\x1b[" in plain.out


def test_c_cli_003_version_wins_wherever_it_stands(run):
    assert run("lint", "--version").out == run("--version").out


def test_words_behind_a_double_dash_are_not_flags(run):
    done = run("schema", "check", "--", "--quiet")
    assert done.code == 1
    assert "there is no file `--quiet`" in done.err


def test_every_command_declares_its_capability():
    reads = ["snapshot", "export", "mcp", "stats"]
    blobs = ["blob get", "blob stat"]
    branches = ["branch create", "branch list", "branch delete"]
    branches += ["branch diff", "branch merge", "branch cherry-pick"]
    reviews = [
        f"review {verb}"
        for verb in (
            *("open", "list", "show", "diff", "edit", "comment", "resolve", "approve"),
            *("request-changes", "check", "merge", "close", "reopen", "export"),
        )
    ]
    history = ["commit list", "commit show", "commit revert", "commit changes"]
    history += ["tag create", "tag list", "tag delete", "changes poll", "changes baseline"]
    direct = [
        "compute",
        "embed",
        "infer",
        "import",
        "init",
        "studio",
        "lint",
        "fmt",
        "translate",
        "lsp",
        "index",
        "optimize",
        "repair",
        "cleanup",
        "scrub",
        "doctor",
    ]
    direct += ["recover", "clone", "push", "pull"]
    direct += ["pipeline init", "pipeline validate", "pipeline plan", "pipeline run"]
    direct += ["schema check", "schema plan", "recovery list"]
    cluster = ["validate", "plan", "apply", "approve", "status", "refresh", "import"]
    cluster.append("force-unlock")
    direct += [f"backup {verb}" for verb in ("create", "verify", "restore", "list", "prune")]
    assert commands() == [
        *("query", "mutate", "shell", "load", *reads, *branches, *reviews, *blobs, *history),
        *("schema apply", "schema rebase", "schema show"),
        "graphs list",
        *direct,
        *("serve", "policy validate", "policy test", "policy explain"),
        *(f"cluster {verb}" for verb in cluster),
        *("audit show", "audit load"),
        *("alias", "use", "login", "logout", "completion", "version"),
        *("profile list", "profile show", "config path", "config show"),
    ]
