"""Bearer tokens, the protection state of a server, and the right to list its graphs.

Tokens are hashed as soon as they are read and never stored, logged or shown.
"""

from __future__ import annotations

import hmac
import json
import os
import secrets
import stat
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from importlib import import_module
from pathlib import Path
from typing import Any

from omnigraph.access.identity import token_digest
from omnigraph.errors import InputError, install_command
from omnigraph.model.ids import check_declared_actor
from omnigraph.policy import Action, Decision, Identity, Policy

ONE_TOKEN = "OMNIGRAPH_SERVER_BEARER_TOKEN"  # noqa: S105 (the names of variables)
TOKENS_FILE = "OMNIGRAPH_SERVER_BEARER_TOKENS_FILE"
TOKENS_JSON = "OMNIGRAPH_SERVER_BEARER_TOKENS_JSON"
TOKENS_AWS_SECRET = "OMNIGRAPH_SERVER_BEARER_TOKENS_AWS_SECRET"  # noqa: S105

DEFAULT_ACTOR = "default"

_OTHERS = stat.S_IRWXO | stat.S_IWGRP | stat.S_IXGRP
"""Modes that a token file must not have; group read is allowed, as mounted secrets have it."""


class TokenTable:
    """Digests of tokens with their actors."""

    def __init__(
        self, pairs: Iterable[tuple[str, str | Sequence[str]]] = (), source: str = "none"
    ) -> None:
        """An actor may have several tokens: a new one works before the old one is removed."""
        self.source = source
        """The names of the variables that the tokens were read from; safe to log."""
        entries: list[tuple[str, bytes]] = []
        actors: set[str] = set()
        for given_actor, given in pairs:
            actor = given_actor.strip()
            check_declared_actor(actor, where=f"an actor of {source}")
            if actor in actors:
                raise InputError(f"actor '{actor}' stands more than once in {source}")
            actors.add(actor)
            tokens = [given] if isinstance(given, str) else given
            if not tokens or not all(token.strip() for token in tokens):
                raise InputError(f"the token of actor '{actor}' in {source} is blank")
            entries += ((actor, token_digest(token.strip())) for token in tokens)
        if len({digest for _, digest in entries}) < len(entries):
            raise InputError(f"two tokens of {source} are the same", hint="give each actor its own")
        self._entries = tuple(entries)

    def __len__(self) -> int:
        return len(self._entries)

    def actor_of(self, token: str) -> str | None:
        """The actor of a token, compared in constant time; None for an unknown token."""
        digest = token_digest(token.strip())
        found: str | None = None
        for actor, known in self._entries:
            if hmac.compare_digest(digest, known):
                found = actor
        return found


class OwnerSession:
    """The session of the user who started a server on this machine.

    A printed one-time code is exchanged for a token, so a copy in a terminal or a browser's history
    opens no second session.
    """

    def __init__(self, actor: str | None) -> None:
        self.actor = actor
        self.code = secrets.token_urlsafe(24)
        self._code: bytes | None = token_digest(self.code)
        """None after the code was used."""
        self._token: bytes | None = None

    def exchange(self, code: str) -> str | None:
        """A token for the code; None if the code is wrong or was used."""
        if self._code is None or not hmac.compare_digest(token_digest(code), self._code):
            return None
        self._code = None
        token = secrets.token_urlsafe(32)
        self._token = token_digest(token)
        return token

    def has(self, token: str) -> bool:
        """Whether this is the session's token."""
        return self._token is not None and hmac.compare_digest(token_digest(token), self._token)


def bearer_token(header: bytes) -> str | None:
    """The token of an `Authorization` header; None if it is no bearer token."""
    text = header.decode("utf-8", "surrogateescape")  # non-UTF-8 bytes match no token
    scheme, _, token = text.strip().partition(" ")
    return token.strip() or None if scheme.lower() == "bearer" else None


def read_tokens(environment: Mapping[str, str]) -> TokenTable:
    """Read the tokens from the configured source; raises `InputError` if it is invalid."""
    secret = environment.get(TOKENS_AWS_SECRET, "").strip()
    if secret:
        return TokenTable(
            _pairs(_aws_secret(secret, environment), TOKENS_AWS_SECRET), TOKENS_AWS_SECRET
        )
    pairs: list[tuple[str, str | Sequence[str]]] = []
    sources: list[str] = []
    if one := environment.get(ONE_TOKEN, "").strip():
        pairs.append((DEFAULT_ACTOR, one))
        sources.append(ONE_TOKEN)
    if path := environment.get(TOKENS_FILE, "").strip():
        pairs += _pairs(_file_text(Path(path)), TOKENS_FILE)
        sources.append(TOKENS_FILE)
    elif text := environment.get(TOKENS_JSON, "").strip():
        pairs += _pairs(text.encode(), TOKENS_JSON)
        sources.append(TOKENS_JSON)
    return TokenTable(pairs, " and ".join(sources) or "none")


def tokens_file(environment: Mapping[str, str]) -> Path | None:
    """The configured token file, if any."""
    if environment.get(TOKENS_AWS_SECRET, "").strip():
        return None
    path = environment.get(TOKENS_FILE, "").strip()
    return Path(path) if path else None


def _file_text(path: Path) -> bytes:
    """The content of a file; raises `InputError` if other users of the machine can access it."""
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            if stat.S_ISREG(mode) and mode & _OTHERS:
                raise InputError(
                    f"other users can read the file of `{TOKENS_FILE}`: its mode is "
                    f"{stat.S_IMODE(mode):04o}",
                    hint=f"run `chmod 600 {path}`",
                )
            return file.read()
    except OSError as problem:
        reason = (problem.strerror or str(problem)).lower()
        raise InputError(f"the file of `{TOKENS_FILE}` cannot be read: {reason}") from None


def _pairs(text: bytes | str, source: str) -> list[tuple[str, str | Sequence[str]]]:
    """Parse the pairs of a JSON object; errors must not quote the text, which holds secrets."""
    wrong = InputError(
        f"`{source}` does not hold one JSON object of actors and tokens",
        hint='write it as {"actor": "token"}, or {"actor": ["new token", "old token"]}',
    )
    try:
        # Parse as pairs, because a dict would silently drop a repeated key.
        found = json.loads(text, object_pairs_hook=tuple)
    except ValueError:
        raise wrong from None
    if not isinstance(found, tuple) or not all(_are_tokens(each) for _, each in found):
        raise wrong
    return list(found)


def _are_tokens(value: object) -> bool:
    several = value if isinstance(value, list) else [value]
    return all(isinstance(token, str) for token in several)


def _aws_secret(secret_id: str, environment: Mapping[str, str]) -> str:
    try:
        boto3: Any = import_module("boto3")
    except ImportError:
        raise InputError(
            f"`{TOKENS_AWS_SECRET}` needs the AWS library, which is not installed",
            hint=f"install it with `{install_command('aws')}`, or name the tokens another way",
        ) from None
    region = environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION")
    try:
        client = boto3.client("secretsmanager", region_name=region)
        found = client.get_secret_value(SecretId=secret_id)
    except Exception as problem:  # the library raises classes that it creates at run time
        raise InputError(
            f"the secret of `{TOKENS_AWS_SECRET}` cannot be read: {type(problem).__name__}",
            hint="check its id, the region and the permission `secretsmanager:GetSecretValue`",
        ) from None
    text = found.get("SecretString")
    if not isinstance(text, str):
        raise InputError(f"the secret of `{TOKENS_AWS_SECRET}` holds no text")
    return text


class RuntimeState(StrEnum):
    """How a server is protected."""

    OPEN = "open"
    """No tokens: every client may do everything."""
    DEFAULT_DENY = "default_deny"
    """Tokens without a policy: their holders may read."""
    POLICY_ENABLED = "policy_enabled"
    """Tokens, and a policy."""
    OWNER = "owner"
    """One session: the user who started the server may do everything."""


def runtime_state(
    *, has_tokens: bool, has_bundle: bool, unauthenticated: bool, is_owned: bool = False
) -> RuntimeState:
    """The state of a server; raises `InputError` for settings with which it must not start."""
    if is_owned:
        return RuntimeState.OWNER
    if has_tokens:
        return RuntimeState.POLICY_ENABLED if has_bundle else RuntimeState.DEFAULT_DENY
    if has_bundle:
        raise InputError(
            "there is a policy and there are no tokens, so callers cannot be told apart",
            hint="set `OMNIGRAPH_SERVER_BEARER_TOKENS_FILE` or another source of tokens",
        )
    if not unauthenticated:
        raise InputError(
            "there are neither tokens nor a policy, so every client could change the graph",
            hint="set `OMNIGRAPH_SERVER_BEARER_TOKEN`, or pass `--unauthenticated` to mean it",
        )
    return RuntimeState.OPEN


READS = frozenset({Action.READ})
"""The actions that holders of tokens may do on a graph without a policy."""


class ServerGate:
    """Decides whether a caller may list the graphs of a server.

    Everything about a graph is decided by the gate of that graph.
    """

    def __init__(self, policy: Policy | None) -> None:
        self._policy = policy

    def graph_list(self, identity: Identity | None) -> Decision:
        """Whether the caller may list the graphs; without a server policy, no."""
        action = Action.GRAPH_LIST
        if self._policy is None:
            message = "`graph_list` is denied: the server has no policy that allows it"
            actor = None if identity is None else identity.id
            return Decision(False, actor, action, None, None, None, message)
        assert identity is not None, "a server with a policy has tokens"
        return self._policy.decide(identity, action)
