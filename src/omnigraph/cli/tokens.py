"""Tokens of servers: where they are kept, and which goes to which server.

A token goes to the server it was given for and to no other. It is never printed.
"""

from __future__ import annotations

import configparser
import os
import secrets
import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

from omnigraph.cli.operator_config import OperatorConfig
from omnigraph.errors import InputError

ANY_SERVER_VARIABLE = "OMNIGRAPH_BEARER_TOKEN"
_OPEN_TO_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def token_variable(server: str) -> str:
    """The environment variable with the token of one server.

    >>> token_variable("prod-eu")
    'OMNIGRAPH_TOKEN_PROD_EU'
    """
    return f"OMNIGRAPH_TOKEN_{server.upper().replace('-', '_')}"


def token_for(url: str, config: OperatorConfig, environment: Mapping[str, str]) -> str | None:
    """The token to send to a URL: the one of its server, else the one for any server."""
    server = _server_of(url, config.servers())
    if server is not None:
        own = environment.get(token_variable(server)) or Credentials.beside(config).token(server)
        if own:
            return own
    return environment.get(ANY_SERVER_VARIABLE) or None


def _server_of(url: str, servers: Mapping[str, str]) -> str | None:
    """The configured server that a URL belongs to: the longest one it begins with."""
    fitting = [name for name, base in servers.items() if _is_below(url, base)]
    return max(fitting, key=lambda name: len(servers[name].rstrip("/")), default=None)


def _is_below(url: str, base: str) -> bool:
    given, known = urlsplit(url), urlsplit(base)
    if (given.scheme.lower(), given.netloc.lower()) != (known.scheme.lower(), known.netloc.lower()):
        return False
    path, start = given.path.rstrip("/"), known.path.rstrip("/")
    return path == start or path.startswith(start + "/")


class Credentials:
    """The file with tokens, one section a server; nobody else may read it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def beside(cls, config: OperatorConfig) -> Credentials:
        """The file beside the configuration."""
        return cls(config.path.with_name("credentials"))

    def token(self, server: str) -> str | None:
        """The token kept for a server; raises `InputError` for a file others can read."""
        return self._read().get(server, "token", fallback=None)

    def keep(self, server: str, token: str) -> None:
        """Keep a token; other servers' stay as they are."""
        found = self._read()
        if not found.has_section(server):
            found.add_section(server)
        found.set(server, "token", token)
        self._write(found)

    def forget(self, server: str) -> bool:
        """Forget a token; whether there was one."""
        found = self._read()
        if not found.remove_section(server):
            return False
        self._write(found)
        return True

    def _read(self) -> configparser.ConfigParser:
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
            # Without the reason: it would quote the file.
            raise InputError(
                f"`{self.path}` is not a file of credentials",
                hint="it has sections `[SERVER]`, each with a line `token = …`",
            ) from None
        return found

    def _write(self, found: configparser.ConfigParser) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        staged = self.path.with_name(f".credentials.{secrets.token_hex(4)}.partial")
        try:
            handle = os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with open(handle, "w", encoding="utf-8") as stream:  # noqa: PTH123 - of a handle
                found.write(stream)
                stream.flush()
                os.fsync(stream.fileno())
            staged.replace(self.path)
        finally:
            with suppress(FileNotFoundError):
                staged.unlink()
