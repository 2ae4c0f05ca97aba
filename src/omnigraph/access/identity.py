"""Who calls: static tokens, signed tokens (JWT), revocations, and a limit for failed attempts.

`Identities.caller` is the one way in. A token that is not accepted has one answer, whatever is
wrong with it. Keys of signed tokens come from a JWKS, a file or a URL. A file is read again when it
has changed. A URL is fetched again when the keys are old or a token names a key that is not there,
and never more often than `REFETCH_SECONDS`: made-up key ids cause no requests.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import jwt
import orjson

from omnigraph.errors import InputError, TooManyRequests
from omnigraph.model.ids import check_declared_actor

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
"""The algorithms that can be allowed, all with a public key → the type of their keys."""
DEFAULT_ALGORITHMS = ("RS256", "ES256")
DEFAULT_ACTOR_CLAIM = "sub"

SKEW_SECONDS = 60
"""How far the clocks of this machine and of the identity provider may be apart."""
TOKEN_CHARACTERS_MAX = 16 * 1024
KEYS_SECONDS = 300.0
"""How old keys from a URL may be; older ones are used while the URL does not answer."""
REFETCH_SECONDS = 10.0
"""The least time between two attempts to get keys."""
FETCH_SECONDS = 5.0
KEYS_BYTES_MAX = 1 << 20
KEYS_MAX = 256

ATTEMPTS_MAX = 100
"""Tokens that an address may send in vain at once; one more every `ATTEMPT_SECONDS`."""
ATTEMPT_SECONDS = 0.6
ADDRESSES_MAX = 4096
ACCEPTED_MAX = 4096
"""Accepted tokens that are remembered, by digest and address."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who sent a request."""

    actor: str
    claims: Mapping[str, Any] = field(default_factory=dict)
    """What the token says about the actor; a static token says nothing."""


FileState = tuple[int, int, int]


def file_state(path: Path) -> FileState:
    """What changes when a file is written or replaced; raises `OSError`."""
    found = path.stat()
    return found.st_mtime_ns, found.st_size, found.st_ino


def _logged(event: str, read: Callable[[], None]) -> None:
    """Read a file again; if that fails, what was read before stays, and the log says why."""
    try:
        read()
    except InputError as problem:
        log.error(event, extra={"fields": {"reason": str(problem)}})


# --- settings -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class JwtSettings:
    """Which signed tokens are accepted; raises `InputError` for what could not work."""

    issuer: str
    audience: str
    keys: str
    """A file, or a URL, of a JWKS."""
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
        """What flags say, or else variables; None if nothing says anything."""
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
        """Whether the keys come from a URL."""
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
        """The key with this id, for this algorithm; None if there is none."""
        if self._settings.is_remote:
            if kid not in self._keys or self._now() - self._read_at > KEYS_SECONDS:
                await self._refetch(kid)
        else:
            _logged("keys of tokens not read", self._read_changed)
        found = self._keys.get(kid)
        # A key is for one algorithm: what was made to check RS256 must not check HS256.
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
        """Read the file if it is not as it was; raises `InputError`."""
        path = Path(self._settings.keys)
        try:
            seen = file_state(path)
            if seen != self._seen:
                self._take(path.read_bytes())
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
                self._take(await asyncio.to_thread(_fetch, self._settings.keys))
            except InputError as problem:
                log.warning("keys of tokens not read", extra={"fields": {"reason": str(problem)}})

    def _take(self, text: bytes) -> None:
        """Replace all keys: one that is not listed any more checks nothing any more."""
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
    """Checks signed tokens of one issuer."""

    def __init__(self, settings: JwtSettings, keys: KeySet | None = None) -> None:
        self._settings = settings
        self._keys = keys or KeySet(settings)

    async def caller(self, token: str) -> Caller | None:
        """Who a token was issued to; None for one that is not accepted."""
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
    """Actors and ids of tokens (`jti`) that are refused, as a file says at each request.

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
        """Whether the caller is refused; the file is read again if it has changed."""
        if self._path is None:
            return False
        # What was revoked stays revoked while the file is broken.
        _logged("revocations not read", partial(self._read, self._path))
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
    """Limits tokens that were sent in vain, by address. Used on the event loop only.

    An address that has used up its attempts is refused before its token is looked at. Tokens that
    were accepted from that address before are excepted: otherwise one client could lock out all
    others behind the same proxy.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._full_at: OrderedDict[str, float] = OrderedDict()
        """By address, the moment at which it has all of its attempts again."""
        self._accepted: OrderedDict[tuple[str, bytes], None] = OrderedDict()

    def require(self, address: str, token: str) -> None:
        """Raise `TooManyRequests` for an address without attempts."""
        full_at = self._full_at.get(address)
        if full_at is not None and not self.knows(address, token):
            require_attempts(full_at - self._now())

    def knows(self, address: str, token: str) -> bool:
        """Whether a token was accepted from an address before."""
        return (address, _digest(token)) in self._accepted

    def failed(self, address: str) -> None:
        """Count one attempt."""
        now = self._now()
        full_at = max(self._full_at.pop(address, now), now) + ATTEMPT_SECONDS
        self._full_at[address] = full_at
        if len(self._full_at) > ADDRESSES_MAX:
            self._full_at.popitem(last=False)

    def succeeded(self, address: str, token: str) -> None:
        """Remember a token that was accepted."""
        key = (address, _digest(token))
        self._accepted[key] = None
        self._accepted.move_to_end(key)
        if len(self._accepted) > ACCEPTED_MAX:
            self._accepted.popitem(last=False)


def require_attempts(seconds: float) -> None:
    """Raise `TooManyRequests` if an address has all its attempts again only after these seconds."""
    if seconds > (ATTEMPTS_MAX - 0.5) * ATTEMPT_SECONDS:
        raise TooManyRequests(
            "too many tokens of this address were not valid", hint="wait a minute, then retry"
        )


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


# --- all together ---------------------------------------------------------------------------------


class Identities:
    """Tells who sent a token. One for a process, in every generation."""

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
        """Who sent a token from an address; None if it is not accepted.

        ``actor_of`` knows the static tokens. Raises `TooManyRequests` for an address that has sent
        too many that were not.
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
