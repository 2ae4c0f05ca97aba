"""`omnigraph login` and `omnigraph logout`: tokens of servers, kept for this user."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from omnigraph.cli.failures import UsageError
from omnigraph.cli.help import Capability, Command
from omnigraph.cli.options import JsonFlag
from omnigraph.cli.output import Output, Styled, output_of

LOGIN_EXAMPLES = """
omnigraph login prod
omnigraph login prod < token.txt
"""
LOGOUT_EXAMPLES = """
omnigraph logout prod
"""

ServerArgument = Annotated[
    str, typer.Argument(metavar="SERVER", help="a name under `servers` of the configuration")
]
TokenOption = Annotated[
    str | None,
    typer.Option(
        "--token", metavar="TOKEN", help="the token; better typed or piped in, where nobody sees it"
    ),
]


def add_to(app: typer.Typer) -> None:
    """Register the commands."""
    panel = Capability.LOCAL.panel
    app.command("login", cls=Command, rich_help_panel=panel, epilog=LOGIN_EXAMPLES)(login)
    app.command("logout", cls=Command, rich_help_panel=panel, epilog=LOGOUT_EXAMPLES)(logout)


def login(
    ctx: typer.Context, server: ServerArgument, token: TokenOption = None, json: JsonFlag = False
) -> None:
    """Keep the token of a server, so that commands that address it send it.

    It is read from stdin, without an echo on a terminal, and kept in a file that only you can read.
    It goes to this server and to no other.
    """
    from omnigraph.cli.addressing import config_of
    from omnigraph.cli.tokens import Credentials

    _require_name(server)
    config, output = config_of(ctx), output_of(ctx)
    is_declared = server in config.servers()
    kept = Credentials.beside(config)
    kept.keep(server, _plain(token if token is not None else _read_token(output, server)))
    if not is_declared:
        output.warning(f"`{server}` is not under `servers` in {config.path}")
    _report(
        output,
        {"server": server, "credentials_path": str(kept.path), "declared": is_declared},
        f"the token of {server} is kept in {kept.path}",
        json=json,
    )


def logout(ctx: typer.Context, server: ServerArgument, json: JsonFlag = False) -> None:
    """Forget the token of a server, if one is kept."""
    from omnigraph.cli.addressing import config_of
    from omnigraph.cli.tokens import Credentials

    _require_name(server)
    kept = Credentials.beside(config_of(ctx))
    had = kept.forget(server)
    said = f"the token of {server} is forgotten" if had else f"no token of {server} was kept"
    document = {"server": server, "credentials_path": str(kept.path)}
    _report(output_of(ctx), document, said, json=json)


def _report(output: Output, document: dict[str, Any], said: str, *, json: bool) -> None:
    if json:
        output.json(document)
    else:
        output.line(Styled(said, "bold green"))


def _require_name(server: str) -> None:
    # Names become sections of a file and names of variables.
    if not server.replace("-", "").replace("_", "").isalnum() or not server.isascii():
        raise UsageError(
            f"`{server}` is not the name of a server",
            hint="names have letters, digits, `-` and `_`; URLs are kept in the configuration",
        )


def _read_token(output: Output, server: str) -> str:
    if sys.stdin is None:
        raise UsageError("stdin is closed", hint="type the token, or pipe it in")
    if sys.stdin.isatty():
        from getpass import getpass

        return getpass(f"token of {server}: ", stream=output.stderr)
    return sys.stdin.readline()


def _plain(token: str) -> str:
    trimmed = token.strip()
    if not trimmed or not trimmed.isascii() or not trimmed.isprintable():
        raise UsageError("the token is empty or not plain text", hint="it is one line")
    return trimmed
