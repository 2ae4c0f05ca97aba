"""Authentication: static tokens, signed tokens (JWT), revocations, and a limit of failed attempts.

The entry point is `Identities.caller`. All rejected tokens get the same answer. Keys of signed
tokens come from a JWKS in a file or at a URL. A file is read again when it changes. A URL is
fetched again when the keys are old or a token names an unknown key, at most every
`REFETCH_SECONDS`, so that made-up key ids cause no flood of requests.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import jwt
import orjson

from omnigraph.errors import InputError, TooManyRequests
from omnigraph.model.ids import check_declared_actor
from omnigraph.model.records import dataclass

log = logging.getLogger(__name__)

ISSUER_VARIABLE = "OMNIGRAPH_JWT_ISSUER"
AUDIENCE_VARIABLE = "OMNIGRAPH_JWT_AUDIENCE"
KEYS_VARIABLE = "OMNIGRAPH_JWT_KEYS"
ALGORITHMS_VARIABLE = "OMNIGRAPH_JWT_ALGORITHMS"
ACTOR_CLAIM_VARIABLE = "OMNIGRAPH_JWT_ACTOR_CLAIM"

KEY_TYPES: Mapping[str, str] = {
    **dict.fromkeys(("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"), "RSA"),
    **dict.fromkeys(("ES256", "ES384", "ES512"), "EC"),
    "EdDSA": "OKP",
}
"""The supported algorithms, all asymmetric, and the types of their keys."""
DEFAULT_ALGORITHMS = ("RS256", "ES256")
DEFAULT_ACTOR_CLAIM = "sub"

SKEW_SECONDS = 60
"""The tolerated clock difference to the identity provider."""
TOKEN_CHARACTERS_MAX = 16 * 1024
KEYS_SECONDS = 300.0
"""The maximum age of keys from a URL; older ones are used while the URL does not answer."""
REFETCH_SECONDS = 10.0
"""The minimum time between attempts to fetch keys."""
FETCH_SECONDS = 5.0
KEYS_BYTES_MAX = 1 << 20
KEYS_MAX = 256

ATTEMPTS_MAX = 100
"""Invalid tokens that an address may send at once; one more every `ATTEMPT_SECONDS`."""
ATTEMPT_SECONDS = 0.6
ADDRESSES_MAX = 4096
ACCEPTED_MAX = 4096
"""Accepted tokens that are remembered, by digest and address."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The authenticated sender of a request."""

    actor: str
    claims: Mapping[str, Any] = field(default_factory=dict)
    """The claims of a signed token; empty for a static token."""


FileState = tuple[int, int, int]


def file_state(path: Path) -> FileState:
    """A fingerprint that changes when a file is written or replaced; raises `OSError`."""
    found = path.stat()
    return found.st_mtime_ns, found.st_size, found.st_ino


def _reload(event: str, read: Callable[[], None]) -> None:
    """Reload a file; on failure the previous content stays, and the error is logged."""
    try:
        read()
    except InputError as problem:
        log.error(event, extra={"fields": {"reason": str(problem)}})


# --- settings -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class JwtSettings:
    """The configuration of signed tokens; raises `InputError` for invalid settings."""

    issuer: str
    audience: str
    keys: str
    """A JWKS: a file or a URL."""
    algorithms: tuple[str, ...] = DEFAULT_ALGORITHMS
    actor_claim: str = DEFAULT_ACTOR_CLAIM

    def __post_init__(self) -> None:
        for name, value in (
            ("--jwt-issuer", self.issuer),
            ("--jwt-audience", self.audience),
            ("--jwt-keys", self.keys),
            ("--jwt-actor-claim", self.actor_claim),
        ):
            if not value.strip():
                raise InputError(
                    f"`{name}` is missing",
                    hint="signed tokens take `--jwt-issuer`, `--jwt-audience` and `--jwt-keys`",
                )
        unknown = [each for each in self.algorithms if each not in KEY_TYPES]
        if unknown or not self.algorithms:
            named = unknown[0] if unknown else ""
            raise InputError(
                f"tokens signed with '{named}' cannot be accepted",
                hint=f"name algorithms with a public key: {', '.join(KEY_TYPES)}",
            )
        if self.is_remote:
            parts = urlsplit(self.keys)
            is_here = parts.hostname in ("localhost", "127.0.0.1", "::1")
            if not parts.hostname or (parts.scheme != "https" and not is_here):
                raise InputError(
                    f"keys from '{self.keys}' could be changed on their way",
                    hint="name an https:// URL, or a file",
                )

    @classmethod
    def given(
        cls,
        environment: Mapping[str, str],
        *,
        issuer: str | None = None,
        audience: str | None = None,
        keys: str | None = None,
        algorithms: Sequence[str] | None = None,
        actor_claim: str | None = None,
    ) -> JwtSettings | None:
        """The settings from flags, else from variables; None without any."""
        issuer = issuer or environment.get(ISSUER_VARIABLE, "")
        audience = audience or environment.get(AUDIENCE_VARIABLE, "")
        keys = keys or environment.get(KEYS_VARIABLE, "")
        if not (issuer or audience or keys):
            return None
        listed = algorithms or environment.get(ALGORITHMS_VARIABLE, "").split(",")
        named = tuple(each.strip() for each in listed if each.strip())
        claim = actor_claim or environment.get(ACTOR_CLAIM_VARIABLE, "") or DEFAULT_ACTOR_CLAIM
        return cls(issuer, audience, keys, named or DEFAULT_ALGORITHMS, claim)

    @property
    def is_remote(self) -> bool:
        """Whether the keys are fetched from a URL."""
        return self.keys.startswith(("https://", "http://"))


# --- keys -----------------------------------------------------------------------------------------


class KeySet:
    """The public keys of an identity provider, by key id. Used on the event loop only."""

    def __init__(self, settings: JwtSettings, *, now: Callable[[], float] = time.monotonic) -> None:
        self._settings = settings
        self._now = now
        self._keys: dict[str | None, dict[str, Any]] = {}
        self._made: dict[tuple[str | None, str], jwt.PyJWK] = {}
        self._read_at = float("-inf")
        self._tried_at = float("-inf")
        self._fetching = asyncio.Lock()
        self._seen: FileState | None = None
        if not settings.is_remote:
            self._read_changed()

    async def key(self, kid: str | None, algorithm: str) -> jwt.PyJWK | None:
        """The key with this id and algorithm; None if there is none."""
        if self._settings.is_remote:
            if kid not in self._keys or self._now() - self._read_at > KEYS_SECONDS:
                await self._refetch(kid)
        else:
            _reload("keys of tokens not read", self._read_changed)
        found = self._keys.get(kid)
        # A key is for one algorithm: a key for RS256 must not verify HS256.
        if found is None or found.get("alg", algorithm) != algorithm:
            return None
        if found["kty"] != KEY_TYPES[algorithm]:
            return None
        made = self._made.get((kid, algorithm))
        if made is None:
            try:
                made = jwt.PyJWK(found, algorithm=algorithm)
            except jwt.PyJWTError:
                return None
            self._made[kid, algorithm] = made
        return made

    def _read_changed(self) -> None:
        """Read the file if it has changed; raises `InputError`."""
        path = Path(self._settings.keys)
        try:
            seen = file_state(path)
            if seen != self._seen:
                self._replace_keys(path.read_bytes())
                self._seen = seen
        except OSError as problem:
            reason = (problem.strerror or str(problem)).lower()
            raise InputError(f"the keys of tokens in {path} cannot be read: {reason}") from None

    async def _refetch(self, kid: str | None) -> None:
        async with self._fetching:
            is_fresh = self._now() - self._read_at <= KEYS_SECONDS
            if (kid in self._keys and is_fresh) or self._now() - self._tried_at < REFETCH_SECONDS:
                return
            self._tried_at = self._now()
            try:
                self._replace_keys(await asyncio.to_thread(_fetch, self._settings.keys))
            except InputError as problem:
                log.warning("keys of tokens not read", extra={"fields": {"reason": str(problem)}})

    def _replace_keys(self, text: bytes) -> None:
        """Replace all keys: removed ones no longer verify tokens."""
        try:
            listed = orjson.loads(text)["keys"]
            usable = [
                each
                for each in listed[:KEYS_MAX]
                if each["kty"] in KEY_TYPES.values() and each.get("use", "sig") == "sig"
            ]
            self._keys = {each.get("kid"): dict(each) for each in usable}
        except (ValueError, KeyError, TypeError, AttributeError):
            raise InputError(f"'{self._settings.keys}' is no JWKS of public keys") from None
        self._made = {}
        self._read_at = self._now()


def _fetch(url: str) -> bytes:
    import httpx

    try:
        with httpx.stream("GET", url, timeout=FETCH_SECONDS, follow_redirects=False) as answer:
            answer.raise_for_status()
            pieces: list[bytes] = []
            for piece in answer.iter_bytes():
                pieces.append(piece)
                if sum(map(len, pieces)) > KEYS_BYTES_MAX:
                    raise InputError(f"{url} has more than {KEYS_BYTES_MAX:,} bytes")
            return b"".join(pieces)
    except httpx.HTTPError as problem:
        raise InputError(f"{url} does not answer: {type(problem).__name__}") from None


class SignedTokens:
    """Verifies signed tokens of one issuer."""

    def __init__(self, settings: JwtSettings, keys: KeySet | None = None) -> None:
        self._settings = settings
        self._keys = keys or KeySet(settings)

    async def caller(self, token: str) -> Caller | None:
        """The caller of a valid token; None for a rejected one."""
        if len(token) > TOKEN_CHARACTERS_MAX or token.count(".") != 2:
            return None
        settings = self._settings
        try:
            header = jwt.get_unverified_header(token)
            algorithm, kid = header.get("alg"), header.get("kid")
            if algorithm not in settings.algorithms or not isinstance(kid, str | None):
                return None
            key = await self._keys.key(kid, algorithm)
            if key is None:
                return None
            claims = jwt.decode(
                token,
                key,
                algorithms=[algorithm],
                issuer=settings.issuer,
                audience=settings.audience,
                leeway=SKEW_SECONDS,
                options={"require": ["exp", "iss", "aud", settings.actor_claim]},
            )
            actor = claims[settings.actor_claim]
            if not isinstance(actor, str):
                return None
            check_declared_actor(actor)
        except (jwt.PyJWTError, InputError, ValueError, TypeError):
            return None
        return Caller(actor, claims)


# --- revocations ----------------------------------------------------------------------------------


class Revocations:
    """Revoked actors and token ids (`jti`), from a file that is reread when it changes.

    The file is one JSON object: `{"actors": [...], "tokens": [...]}`.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._seen: FileState | None = None
        self._actors: frozenset[str] = frozenset()
        self._tokens: frozenset[str] = frozenset()
        if path is not None:
            self._read(path)

    def has(self, caller: Caller) -> bool:
        """Whether the caller is revoked; rereads the file if it has changed."""
        if self._path is None:
            return False
        # While the file is unreadable, the previous revocations stay in force.
        _reload("revocations not read", partial(self._read, self._path))
        return caller.actor in self._actors or caller.claims.get("jti") in self._tokens

    def _read(self, path: Path) -> None:
        try:
            seen = file_state(path)
            if seen != self._seen:
                self._actors, self._tokens = _revoked(path)
                self._seen = seen
        except OSError as problem:
            reason = (problem.strerror or str(problem)).lower()
            raise InputError(f"the revocations {path} cannot be read: {reason}") from None


def _revoked(path: Path) -> tuple[frozenset[str], frozenset[str]]:
    wrong = InputError(
        f"the revocations {path} are not one JSON object of `actors` and `tokens`",
        hint='write it as {"actors": ["act-bo"], "tokens": ["id of a token"]}',
    )
    try:
        found = orjson.loads(path.read_bytes())
    except orjson.JSONDecodeError:
        raise wrong from None
    if not isinstance(found, dict) or found.keys() - {"actors", "tokens"}:
        raise wrong
    lists = [found.get(name, []) for name in ("actors", "tokens")]
    if not all(isinstance(each, list) and _are_texts(each) for each in lists):
        raise wrong
    return frozenset(lists[0]), frozenset(lists[1])


def _are_texts(values: list[Any]) -> bool:
    return all(isinstance(value, str) for value in values)


# --- attempts -------------------------------------------------------------------------------------


class Attempts:
    """Limits invalid tokens by address. Used on the event loop only.

    An address without attempts left is refused before its token is checked. Tokens that were
    accepted from it before are exempt: otherwise one client could lock out all others behind the
    same proxy.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._full_at: OrderedDict[str, float] = OrderedDict()
        """By address, the time at which all attempts are available again."""
        self._accepted: OrderedDict[tuple[str, bytes], None] = OrderedDict()

    def require(self, address: str, token: str) -> None:
        """Raise `TooManyRequests` for an address that has no attempts left."""
        full_at = self._full_at.get(address)
        if full_at is not None and not self.knows(address, token):
            require_attempts(full_at - self._now())

    def knows(self, address: str, token: str) -> bool:
        """Whether a token was accepted from an address before."""
        return (address, token_digest(token)) in self._accepted

    def failed(self, address: str) -> None:
        """Count a failed attempt."""
        now = self._now()
        full_at = max(self._full_at.pop(address, now), now) + ATTEMPT_SECONDS
        self._full_at[address] = full_at
        if len(self._full_at) > ADDRESSES_MAX:
            self._full_at.popitem(last=False)

    def succeeded(self, address: str, token: str) -> None:
        """Remember an accepted token."""
        key = (address, token_digest(token))
        self._accepted[key] = None
        self._accepted.move_to_end(key)
        if len(self._accepted) > ACCEPTED_MAX:
            self._accepted.popitem(last=False)


def require_attempts(seconds: float) -> None:
    """Raise `TooManyRequests` if no attempt is left; ``seconds`` is the time until all are back."""
    if seconds > (ATTEMPTS_MAX - 0.5) * ATTEMPT_SECONDS:
        raise TooManyRequests(
            "too many tokens of this address were not valid", hint="wait a minute, then retry"
        )


def token_digest(token: str) -> bytes:
    """What a token is compared by."""
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


# --- all methods ----------------------------------------------------------------------------------


class Identities:
    """Authenticates tokens. One instance per process, in every generation."""

    def __init__(
        self,
        settings: JwtSettings | None,
        revocations: Path | None,
        attempts: Attempts | None = None,
    ) -> None:
        self.attempts = attempts or Attempts()
        self._signed = None if settings is None else SignedTokens(settings)
        self._revoked = Revocations(revocations)

    async def caller(
        self, token: str, actor_of: Callable[[str], str | None], address: str
    ) -> Caller | None:
        """The caller of a token sent from an address; None if it is rejected.

        ``actor_of`` looks up static tokens. Raises `TooManyRequests` for an address that has sent
        too many invalid ones.
        """
        self.attempts.require(address, token)
        actor = actor_of(token)
        found = None if actor is None else Caller(actor)
        if found is None and self._signed is not None:
            found = await self._signed.caller(token)
        if found is None or self._revoked.has(found):
            self.attempts.failed(address)
            return None
        self.attempts.succeeded(address, token)
        return found
