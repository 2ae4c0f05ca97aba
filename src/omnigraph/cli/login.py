"""`omnigraph login` and `logout`: storing tokens, and selecting the token for a server."""

from __future__ import annotations

import io
import shutil
import stat
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

import typer

from omnigraph.cli.addressing import config_of
from omnigraph.cli.failures import UsageError
from omnigraph.cli.files import replaced_file
from omnigraph.cli.help import Command, Commands
from omnigraph.cli.options import JsonFlag, argument, flag, option
from omnigraph.cli.output import Output, output_of
from omnigraph.errors import InputError

if TYPE_CHECKING:
    import configparser

    from omnigraph.cli.operator_config import OperatorConfig

COMMANDS = Commands()

KeychainFlag = Annotated[
    bool, flag("--keychain", "keep it in the keychain of the system instead of the file")
]
ServerArgument = Annotated[str, argument("SERVER", "a name under `servers` of the configuration")]
TokenOption = Annotated[
    str | None,
    option("--token", "TOKEN", "the token; better typed or piped in, where it is not shown"),
]


@COMMANDS.add(Command)
def login(
    ctx: typer.Context,
    server: ServerArgument,
    token: TokenOption = None,
    keychain: KeychainFlag = False,
    json: JsonFlag = False,
) -> None:
    """Keep the token of a server, so that commands that address it send it.

    It is read from stdin, without an echo on a terminal, and kept in a file that only you can read,
    or in the keychain of the system: that of macOS, or on Linux what `secret-tool` talks to. It
    goes to this server and to no other.

    omnigraph login prod
    omnigraph login prod --keychain
    omnigraph login prod < token.txt
    """
    _require_name(server)
    config, output = config_of(ctx), output_of(ctx)
    is_declared = server in config.servers()
    kept = Credentials.beside(config)
    if keychain:
        Keychain.require()
    found = _plain(token if token is not None else _read_token(output, server))
    kept.keep(server, found, in_keychain=keychain)
    if not is_declared:
        output.warning(f"`{server}` is not under `servers` in {config.path}")
    document = {"server": server, "credentials_path": str(kept.path), "declared": is_declared}
    place = "the keychain" if keychain else str(kept.path)
    output.done(document, f"the token of {server} is kept in {place}", json=json)


@COMMANDS.add(Command)
def logout(ctx: typer.Context, server: ServerArgument, json: JsonFlag = False) -> None:
    """Forget the token of a server, if one is kept.

    omnigraph logout prod
    """
    _require_name(server)
    kept = Credentials.beside(config_of(ctx))
    had = kept.forget(server)
    sentence = f"the token of {server} is forgotten" if had else f"no token of {server} was kept"
    document = {"server": server, "credentials_path": str(kept.path)}
    output_of(ctx).done(document, sentence, json=json)


def _require_name(server: str) -> None:
    # The name becomes a section of the file and part of a variable's name.
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


ANY_SERVER_VARIABLE = "OMNIGRAPH_BEARER_TOKEN"
_OPEN_TO_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def token_variable(server: str) -> str:
    """The environment variable with the token of one server.

    >>> token_variable("prod-eu")
    'OMNIGRAPH_TOKEN_PROD_EU'
    """
    return f"OMNIGRAPH_TOKEN_{server.upper().replace('-', '_')}"


def token_for(url: str, config: OperatorConfig, environment: Mapping[str, str]) -> str | None:
    """The token to send to a URL: that of the configured server, else the one for any server."""
    server = _server_of(url, config.servers())
    if server is not None:
        own = environment.get(token_variable(server)) or Credentials.beside(config).token(server)
        if own:
            return own
    return environment.get(ANY_SERVER_VARIABLE) or None


def token_source(server: str, config: OperatorConfig, environment: Mapping[str, str]) -> str | None:
    """Where the token of a configured server comes from; None if it has none.

    Does not read the token itself from a keychain.
    """
    if environment.get(token_variable(server)):
        return token_variable(server)
    place = Credentials.beside(config).place_of(server)
    if place is not None:
        return place
    return ANY_SERVER_VARIABLE if environment.get(ANY_SERVER_VARIABLE) else None


def _server_of(url: str, servers: Mapping[str, str]) -> str | None:
    """The configured server with the longest URL that is a prefix of this one."""
    fitting = [name for name, base in servers.items() if _is_below(url, base)]
    return max(fitting, key=lambda name: len(servers[name].rstrip("/")), default=None)


def _is_below(url: str, base: str) -> bool:
    given, known = urlsplit(url), urlsplit(base)
    if (given.scheme.lower(), given.netloc.lower()) != (known.scheme.lower(), known.netloc.lower()):
        return False
    path, start = given.path.rstrip("/"), known.path.rstrip("/")
    return path == start or path.startswith(start + "/")


_IN_KEYCHAIN = "keychain"
_SERVICE = "omnigraph"
KEYCHAIN_SECONDS = 60
"""Long, because the keychain may ask the user to unlock it."""


class Keychain:
    """The keychain of the system, driven by its command-line program."""

    def __init__(self, program: str) -> None:
        self._program = program
        self._is_macos = Path(program).name == "security"

    @classmethod
    def require(cls) -> Keychain:
        """The keychain; raises `InputError` if its program is missing."""
        name = "security" if sys.platform == "darwin" else "secret-tool"
        program = shutil.which(name)
        if program is None:
            raise InputError(
                f"there is no `{name}`, so the keychain cannot be used",
                hint="install it, or keep the token in the file: leave `--keychain` out",
            )
        return cls(program)

    def keep(self, server: str, token: str) -> None:
        """Store a token. It is passed by stdin: other users can see the arguments of programs."""
        if self._is_macos:
            quoted = token.replace("\\", "\\\\").replace('"', '\\"')
            words = f'add-generic-password -U -s {_SERVICE} -a {server} -w "{quoted}"\n'
            self._run(["-i"], words, server)
        else:
            label = f"Omnigraph: {server}"
            self._run(["store", f"--label={label}", *self._attributes(server)], token, server)

    def token(self, server: str) -> str:
        """The stored token; raises `InputError` if it is missing or locked."""
        if self._is_macos:
            found = self._run(
                ["find-generic-password", *self._attributes(server), "-w"], "", server
            )
        else:
            found = self._run(["lookup", *self._attributes(server)], "", server)
        if not found.strip():
            raise self._missing(server)
        return found.strip()

    def forget(self, server: str) -> None:
        """Remove a token, if there is one."""
        verb = "delete-generic-password" if self._is_macos else "clear"
        with suppress(InputError):
            self._run([verb, *self._attributes(server)], "", server)

    def _attributes(self, server: str) -> list[str]:
        if self._is_macos:
            return ["-s", _SERVICE, "-a", server]
        return ["service", _SERVICE, "server", server]

    def _run(self, arguments: list[str], text: str, server: str) -> str:
        try:
            done = subprocess.run(
                [self._program, *arguments],
                input=text,
                capture_output=True,
                text=True,
                timeout=KEYCHAIN_SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as problem:
            # Without the program's output: it may contain the token.
            raise InputError(
                f"`{Path(self._program).name}` does not answer: {type(problem).__name__}",
                hint="unlock the keychain, or keep the token in the file",
            ) from None
        if done.returncode:
            raise self._missing(server)
        return done.stdout

    def _missing(self, server: str) -> InputError:
        return InputError(
            f"the keychain does not give the token of {server}",
            hint=f"unlock it, or run `omnigraph login {server} --keychain` again",
        )


class Credentials:
    """The file with tokens, one section per server, readable by its owner only."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def beside(cls, config: OperatorConfig) -> Credentials:
        """The file beside the configuration."""
        return cls(config.path.with_name("credentials"))

    def token(self, server: str) -> str | None:
        """The token stored for a server, in this file or in the keychain.

        Raises `InputError` if other users can read the file, and if the keychain lacks the token.
        """
        found = self._read()
        if found.has_option(server, _IN_KEYCHAIN):
            return Keychain.require().token(server)
        return found.get(server, "token", fallback=None)

    def place_of(self, server: str) -> str | None:
        """Where the token of a server is stored; None if there is none."""
        found = self._read()
        if found.has_option(server, _IN_KEYCHAIN):
            return "keychain"
        return self.path.name if found.has_option(server, "token") else None

    def keep(self, server: str, token: str, *, in_keychain: bool = False) -> None:
        """Store a token; tokens of other servers stay.

        With ``in_keychain``, the server's section of the file says only that the keychain has it.
        """
        found = self._read()
        if in_keychain:
            Keychain.require().keep(server, token)
        elif found.has_option(server, _IN_KEYCHAIN):
            Keychain.require().forget(server)
        found.remove_section(server)
        found.add_section(server)
        found.set(server, *((_IN_KEYCHAIN, "yes") if in_keychain else ("token", token)))
        self._write(found)

    def forget(self, server: str) -> bool:
        """Remove a token; returns whether there was one."""
        found = self._read()
        if found.has_option(server, _IN_KEYCHAIN):
            Keychain.require().forget(server)
        if not found.remove_section(server):
            return False
        self._write(found)
        return True

    def _read(self) -> configparser.ConfigParser:
        import configparser

        found = configparser.ConfigParser(interpolation=None)
        try:
            mode = self.path.stat().st_mode
        except FileNotFoundError:
            return found
        if mode & _OPEN_TO_OTHERS:
            raise InputError(
                f"`{self.path}` can be read by others, and it holds tokens",
                hint=f"run `chmod 600 {self.path}`",
            )
        try:
            found.read_string(self.path.read_text(encoding="utf-8"))
        except (configparser.Error, UnicodeDecodeError):
            # Without the parser's message: it would quote the file.
            raise InputError(
                f"`{self.path}` is not a file of credentials",
                hint="it has sections `[SERVER]`, each with a line `token = …`",
            ) from None
        return found

    def _write(self, found: configparser.ConfigParser) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        text = io.StringIO()
        found.write(text)
        with replaced_file(self.path, is_private=True) as stream:
            stream.write(text.getvalue().encode())
