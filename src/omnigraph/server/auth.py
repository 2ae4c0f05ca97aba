"""Bearer tokens, the state of a server, and whether a caller may: its gate.

Tokens are hashed as soon as they are read and never kept, logged or shown.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
import stat
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any

from omnigraph.errors import InputError
from omnigraph.model.ids import MAIN_BRANCH, check_declared_actor
from omnigraph.policy import Action, Policy

ONE_TOKEN = "OMNIGRAPH_SERVER_BEARER_TOKEN"  # noqa: S105 (the names of variables)
TOKENS_FILE = "OMNIGRAPH_SERVER_BEARER_TOKENS_FILE"
TOKENS_JSON = "OMNIGRAPH_SERVER_BEARER_TOKENS_JSON"
TOKENS_AWS_SECRET = "OMNIGRAPH_SERVER_BEARER_TOKENS_AWS_SECRET"  # noqa: S105

DEFAULT_ACTOR = "default"

_OTHERS = stat.S_IRWXO | stat.S_IWGRP | stat.S_IXGRP
"""Modes that a file of tokens must not have; a group may read it, as where secrets are mounted."""


class TokenTable:
    """Digests of tokens with their actors."""

    def __init__(
        self, pairs: Iterable[tuple[str, str | Sequence[str]]] = (), source: str = "none"
    ) -> None:
        """An actor with several tokens may use each: a new one before the old one is removed."""
        self.source = source
        """The names of the variables that the tokens came from; safe to log."""
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
            entries += ((actor, _digest(token.strip())) for token in tokens)
        if len({digest for _, digest in entries}) < len(entries):
            raise InputError(f"two tokens of {source} are the same", hint="give each actor its own")
        self._entries = tuple(entries)

    def __len__(self) -> int:
        return len(self._entries)

    def actor_of(self, token: str) -> str | None:
        """The actor of a token; takes the same time whether and where it is found."""
        digest = _digest(token.strip())
        found: str | None = None
        for actor, known in self._entries:
            if hmac.compare_digest(digest, known):
                found = actor
        return found


class OwnerSession:
    """The session of the person who started a server on this machine.

    A code, printed once, is exchanged for a token: what stands in a terminal or in the history of
    a browser opens nothing a second time.
    """

    def __init__(self, actor: str | None) -> None:
        self.actor = actor
        self.code = secrets.token_urlsafe(24)
        self._code: bytes | None = _digest(self.code)
        """None once the code was used."""
        self._token: bytes | None = None

    def exchange(self, code: str) -> str | None:
        """A token for the code; None if it is another one, or was used before."""
        if self._code is None or not hmac.compare_digest(_digest(code), self._code):
            return None
        self._code = None
        token = secrets.token_urlsafe(32)
        self._token = _digest(token)
        return token

    def has(self, token: str) -> bool:
        """Whether it is the token that was given for the code."""
        return self._token is not None and hmac.compare_digest(_digest(token), self._token)


def bearer_token(header: bytes) -> str | None:
    """The token of an `Authorization` header; None if it holds no bearer token."""
    text = header.decode("utf-8", "surrogateescape")  # bytes that are no text match no token
    scheme, _, token = text.strip().partition(" ")
    return token.strip() or None if scheme.lower() == "bearer" else None


def read_tokens(environment: Mapping[str, str]) -> TokenTable:
    """The tokens that the environment names; raises `InputError` for a source that is no good."""
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
    """The file that tokens are read from, if one is."""
    if environment.get(TOKENS_AWS_SECRET, "").strip():
        return None
    path = environment.get(TOKENS_FILE, "").strip()
    return Path(path) if path else None


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


def _file_text(path: Path) -> bytes:
    """The text of a file that no other user of the machine can read or change."""
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
    """The pairs of one JSON object; the error must not repeat the text, which holds secrets."""
    wrong = InputError(
        f"`{source}` does not hold one JSON object of actors and tokens",
        hint='write it as {"actor": "token"}, or {"actor": ["new token", "old token"]}',
    )
    try:
        # The standard library shows repeated keys, which would hide one token behind another.
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
            hint="install it with `pip install 'omnigraph[aws]'`, or name the tokens another way",
        ) from None
    region = environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION")
    try:
        client = boto3.client("secretsmanager", region_name=region)
        found = client.get_secret_value(SecretId=secret_id)
    except Exception as problem:  # the library raises classes it makes up while running
        raise InputError(
            f"the secret of `{TOKENS_AWS_SECRET}` cannot be read: {type(problem).__name__}",
            hint="check its id, the region and the permission `secretsmanager:GetSecretValue`",
        ) from None
    text = found.get("SecretString")
    if not isinstance(text, str):
        raise InputError(f"the secret of `{TOKENS_AWS_SECRET}` holds no text")
    return text


DECISIONS_KEPT_MAX = 4096


class RuntimeState(StrEnum):
    """What protects a server."""

    OPEN = "open"
    """Nothing: every client of the port may do everything to the graphs."""
    DEFAULT_DENY = "default_deny"
    """Tokens, and no policy: their holders may read."""
    POLICY_ENABLED = "policy_enabled"
    """Tokens, and a policy."""
    OWNER = "owner"
    """One session: whoever started the server may do everything."""


def runtime_state(
    *, has_tokens: bool, has_bundle: bool, unauthenticated: bool, is_owned: bool = False
) -> RuntimeState:
    """The state of a server; raises `InputError` where it must not start."""
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


@dataclass(frozen=True, slots=True)
class Question:
    """What a caller wants to do."""

    action: Action
    branch: str | None = None
    target_branch: str | None = None
    reviewed: bool = False
    """Whether a change request is to be merged, which has to fulfil what its target requires."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The decision about a question."""

    allowed: bool
    matched_rule_id: str | None
    message: str
    is_bypass: bool = False
    """Whether it is allowed beside the requirements of a branch."""


_OPEN = Verdict(True, None, "the server is open, or its owner's")


class Gate:
    """Decides for one graph, or for the server itself. Decisions need no I/O and are remembered."""

    def __init__(self, state: RuntimeState, policy: Policy | None) -> None:
        self._state = state
        self._policy = policy
        self.decide = lru_cache(DECISIONS_KEPT_MAX)(self._decide)

    def allows_somewhere(self, actor: str | None, action: Action) -> bool:
        """Whether the rules allow it on any kind of branch, existing or not."""
        return any(
            self.decide(actor, question).allowed
            for name in self._kinds_of_branch()
            for question in (Question(action, name), Question(action, None, name, reviewed=True))
        )

    def _kinds_of_branch(self) -> tuple[str, ...]:
        """A name for each kind of branch that a rule can tell from others."""
        protected = frozenset[str]() if self._policy is None else self._policy.protected_branches
        other = MAIN_BRANCH
        while other in protected:
            other += "-"
        return (other, *sorted(protected)[:1])

    def _decide(self, actor: str | None, question: Question) -> Verdict:
        if question.action is Action.GRAPH_LIST and self._policy is None:
            return Verdict(
                False, None, "`graph_list` is denied: the server has no policy that allows it"
            )
        if self._state in (RuntimeState.OPEN, RuntimeState.OWNER):
            return _OPEN
        assert actor is not None, "only an open server has callers without a name"
        if self._policy is None:
            allowed = question.action is Action.READ
            message = (
                f"without a policy, actor `{actor}` may only read; `--policy` gives the server one"
            )
            return Verdict(allowed, None, message)
        found = self._policy.decide(
            actor,
            question.action,
            branch=question.branch,
            target_branch=question.target_branch,
            reviewed=question.reviewed,
        )
        return Verdict(found.allowed, found.matched_rule_id, found.message, found.is_bypass)
