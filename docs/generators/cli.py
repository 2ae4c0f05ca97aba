"""The reference of the command line: what `--help` says, command by command."""

from __future__ import annotations

import json

from omnigraph.cli.failures import ExitCode
from omnigraph.cli.help import all_pages, command_index
from omnigraph.cli.main import SOURCES, root_command

INTRODUCTION = """\
# Command line

<!-- Written by `make docs` from omnigraph/cli: edit there. -->

Results go to stdout; warnings, progress and errors go to stderr. Every command takes `--json`, and
one that fails then also writes the error as JSON to stdout, or to stderr where stdout is a stream
of data. Nothing is coloured in a pipe.

A graph is named in one way by all commands: `--store URI` is its storage, `--server URL` or `NAME`
with `--graph ID` is a graph of a server, and `--profile NAME` is either, under a name; else
`OMNIGRAPH_PROFILE` names a profile; else it is what `omnigraph use` chose. Two flags at once, and
a flag that a command cannot use, are errors before anything is read. What earlier versions took
goes on working: `--uri` is `--store`, and so is a URI behind the other arguments of a command.

| Exit code | Meaning |
| --- | --- |
"""


def cli_page() -> str:
    """The help pages of every command, one section each."""
    codes = "".join(f"| {code:d} | {code.meaning} |\n" for code in ExitCode)
    sections = [
        f"\n## {name}\n\n```text\n{page}\n```\n" for name, page in all_pages(root_command()).items()
    ]
    return INTRODUCTION + codes + "".join(sections)


def index_of_commands() -> str:
    """What `omnigraph --help` says of every command, which it need not import for that."""
    return json.dumps(command_index(SOURCES), indent=1) + "\n"
