"""Signed tokens, rotation, revocation, limits for attempts, TLS."""

from __future__ import annotations

import asyncio
import base64
import datetime
import hmac
import ipaddress
import json
import ssl
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import httpx
import jwt
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from omnigraph.access.identity import (
    ATTEMPT_SECONDS,
    ATTEMPTS_MAX,
    KEYS_SECONDS,
    REFETCH_SECONDS,
    Attempts,
    Identities,
    JwtSettings,
    KeySet,
)
from omnigraph.errors import InputError, TooManyRequests
from omnigraph.server.auth import TOKENS_FILE, TokenTable
from omnigraph.server.config import GraphSpec, ServerConfig
from tests.server.jwts import AUDIENCE, ISSUER, Provider
from tests.server.live import PEOPLE, POLICY, TOKENS, Live, bearer, new_graph, serving, with_tokens


@pytest.fixture(scope="module")
def provider(tmp_path_factory: pytest.TempPathFactory) -> Provider:
    return Provider(tmp_path_factory.mktemp("provider") / "jwks.json")


@pytest.fixture(scope="module")
def live(provider: Provider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """Static and signed tokens, and a policy."""
    folder = tmp_path_factory.mktemp("signed")
    new_graph(folder / "team.omni")
    (folder / "policy.yaml").write_text(POLICY)
    spec = GraphSpec("default", str(folder / "team.omni"), (), folder / "policy.yaml")
    with serving(spec, environment=with_tokens(), jwt=provider.settings) as live:
        yield live


def status(live: Live, token: str) -> int:
    headers = {"Authorization": f"Bearer {token}"}
    return httpx.get(f"{live.url}/graphs/default/schema", headers=headers).status_code


def encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def plain_token(*parts: Any) -> str:
    return ".".join(encoded(json.dumps(part).encode()) for part in parts)


def test_a_signed_token_and_a_static_one_are_the_same_actor(live: Live, provider: Provider):
    assert status(live, provider.token("act-ana")) == 200
    assert status(live, TOKENS["act-ana"]) == 200
    assert status(live, provider.token("act-stranger")) == 403  # known, and without a right


def test_c_acc_009_every_bad_signed_token_is_401_with_one_body(live: Live, provider: Provider):
    now = int(time.time())
    other = Provider(provider.path.with_name("other.json"))
    public = json.dumps(provider.jwks()["keys"][0]).encode()
    claims = provider.claims()
    unsigned = plain_token({"alg": "none", "kid": provider.kid}, claims)
    shared = plain_token({"alg": "HS256", "kid": provider.kid}, claims)
    confused = encoded(hmac.digest(public, shared.encode(), "sha256"))
    good = provider.token()
    head, body, signature = good.split(".")
    other.kid, known = provider.kid, other.kid
    bad = {
        "issuer": provider.token(iss="https://other.example"),
        "no issuer": provider.token(iss=None),
        "audience": provider.token(aud="another"),
        "no audience": provider.token(aud=None),
        "none": unsigned + ".",
        "none with a signature": f"{unsigned}.{signature}",
        # The public key, which everybody has, taken for a shared secret.
        "confusion": f"{shared}.{confused}",
        "expired": provider.token(exp=now - 90),
        "no expiry": provider.token(exp=None),
        "not yet": provider.token(nbf=now + 90),
        "issued in the future": provider.token(iat=now + 90),
        "unknown key": jwt.encode(claims, other._keys[known], "ES256", {"kid": "no-such-key"}),
        "no key id": jwt.encode(claims, other._keys[known], "ES256"),
        "key id that is no text": plain_token({"alg": "ES256", "kid": [1]}, claims) + ".AAAA",
        "another key": jwt.encode(claims, other._keys[known], "ES256", {"kid": provider.kid}),
        "no actor": provider.token(sub=None),
        "a reserved actor": provider.token(actor="omnigraph:recovery"),
        "a blank actor": provider.token(actor=" "),
        "changed": f"{head}.{body[:-4]}AAAA.{signature}",
        "cut": good[:-8],
        "huge": provider.token(note="x" * 20_000),
        "no token at all": "a.b.c",
        "a wrong static token": TOKENS["act-ana"] + "x",
    }
    answers = {}
    for name, token in bad.items():
        headers = {"Authorization": f"Bearer {token}"}
        answer = httpx.get(f"{live.url}/graphs/default/schema", headers=headers)
        assert answer.status_code == 401, name
        assert answer.headers["www-authenticate"] == "Bearer"
        answers[name] = answer.content
    assert len(set(answers.values())) == 1
    assert status(live, good) == 200
    assert not any(token in line for line in live.events for token in bad.values())


def test_clocks_may_be_a_minute_apart(live: Live, provider: Provider):
    now = int(time.time())
    late = provider.token(exp=now - 30)
    early = provider.token(nbf=now + 30, iat=now + 30)
    assert status(live, late) == status(live, early) == 200


def test_c_acc_009_keys_rotate_without_a_restart(live: Live, provider: Provider):
    before = provider.token()
    assert status(live, before) == 200
    provider.rotate("key-2", keeps=True)
    assert status(live, before) == status(live, provider.token()) == 200
    provider.rotate("key-3")
    assert status(live, before) == 401
    assert status(live, provider.token()) == 200


class Published(BaseHTTPRequestHandler):
    """Answers with what the server holds, and counts."""

    def do_GET(self) -> None:
        server: Any = self.server
        server.asked += 1
        self.send_response(200 if server.text else 503)
        self.end_headers()
        self.wfile.write(server.text)

    def log_message(self, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def published() -> Iterator[Any]:
    server: Any = HTTPServer(("127.0.0.1", 0), Published)
    server.asked, server.text = 0, b""
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()


def test_c_acc_009_keys_of_a_url_are_kept_and_fetched_again_within_bounds(
    tmp_path: Path, published: Any
):
    provider = Provider(tmp_path / "jwks.json")
    moment = [1000.0]
    settings = JwtSettings(ISSUER, AUDIENCE, f"http://127.0.0.1:{published.server_port}/jwks")

    async def story() -> None:
        keys = KeySet(settings, now=lambda: moment[0])
        assert await keys.key("key-1", "ES256") is None  # the provider does not answer yet
        published.text = json.dumps(provider.jwks()).encode()
        assert await keys.key("key-1", "ES256") is None
        assert published.asked == 1  # so soon, it is not asked again
        moment[0] += REFETCH_SECONDS
        assert await keys.key("key-1", "ES256") is not None
        assert await keys.key("key-1", "RS256") is None  # not what the key is for
        assert published.asked == 2
        # Any number of unknown ids at once causes one request, and no other for a while.
        moment[0] += REFETCH_SECONDS
        found = await asyncio.gather(*(keys.key(f"made-up-{n}", "ES256") for n in range(50)))
        assert found == [None] * 50
        assert published.asked == 3
        provider.rotate("key-2")
        published.text = json.dumps(provider.jwks()).encode()
        moment[0] += REFETCH_SECONDS
        assert await keys.key("key-2", "ES256") is not None
        assert await keys.key("key-1", "ES256") is None
        # Old keys are fetched again, and used while the provider is away.
        published.text = b""
        moment[0] += KEYS_SECONDS + 1
        asked = published.asked
        assert await keys.key("key-2", "ES256") is not None
        assert published.asked == asked + 1

    asyncio.run(story())


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"algorithms": ("HS256",)}, "HS256"),
        ({"algorithms": ("none",)}, "none"),
        ({"issuer": ""}, "--jwt-issuer"),
        ({"audience": " "}, "--jwt-audience"),
        ({"keys": "http://login.example/jwks"}, "changed on their way"),
    ],
)
def test_settings_that_would_accept_too_much_stop_the_start(change: dict[str, Any], match: str):
    plain: dict[str, Any] = {"issuer": ISSUER, "audience": AUDIENCE, "keys": "jwks.json"}
    with pytest.raises(InputError, match=match):
        JwtSettings(**{**plain, **change})


def test_a_missing_or_broken_file_of_keys_or_revocations_stops_the_start(tmp_path: Path):
    settings = JwtSettings(ISSUER, AUDIENCE, str(tmp_path / "jwks.json"))
    with pytest.raises(InputError, match="cannot be read"):
        Identities(settings, None)
    (tmp_path / "jwks.json").write_text('{"keys": 1}')
    with pytest.raises(InputError, match="no JWKS"):
        Identities(settings, None)
    with pytest.raises(InputError, match="cannot be read"):
        Identities(None, tmp_path / "revoked.json")
    (tmp_path / "revoked.json").write_text('{"actor": ["act-bo"]}')
    with pytest.raises(InputError, match="`actors` and `tokens`"):
        Identities(None, tmp_path / "revoked.json")


def test_c_acc_010_tokens_rotate_and_are_revoked_without_a_restart(
    spec: GraphSpec, tmp_path: Path, provider: Provider
):
    tokens, revoked = tmp_path / "tokens.json", tmp_path / "revoked.json"

    def give(given: Any, path: Path) -> None:
        path.with_suffix(".next").write_text(json.dumps(given))
        path.with_suffix(".next").chmod(0o600)
        path.with_suffix(".next").replace(path)

    give({"act-ana": "old-token-of-ana"}, tokens)
    give({}, revoked)
    environment = {TOKENS_FILE: str(tokens)}
    with serving(
        spec, environment=environment, jwt=provider.settings, revocations=revoked, waits=False
    ) as live:
        give({"act-ana": ["new-token-of-ana", "old-token-of-ana"]}, tokens)
        assert live.call(live.server.reloader.reload)
        assert status(live, "old-token-of-ana") == status(live, "new-token-of-ana") == 200
        give({"act-ana": "new-token-of-ana"}, tokens)
        assert live.call(live.server.reloader.reload)
        assert status(live, "old-token-of-ana") == 401
        assert status(live, "new-token-of-ana") == 200

        lost, kept = provider.token("act-bo", jti="lost"), provider.token("act-bo", jti="kept")
        assert status(live, lost) == status(live, kept) == 200
        give({"tokens": ["lost"]}, revoked)
        assert (status(live, lost), status(live, kept)) == (401, 200)
        give({"actors": ["act-bo", "act-ana"], "tokens": ["lost"]}, revoked)
        assert {status(live, each) for each in (lost, kept, "new-token-of-ana")} == {401}
        revoked.write_text("broken")  # what was revoked stays so
        assert status(live, lost) == status(live, kept) == 401
        give({}, revoked)
        assert status(live, lost) == status(live, "new-token-of-ana") == 200


def test_c_acc_010_a_request_under_way_ends_when_its_actor_is_revoked(
    spec: GraphSpec, tmp_path: Path
):
    revoked = tmp_path / "revoked.json"
    revoked.write_text("{}")
    with serving(spec, environment=with_tokens(), revocations=revoked, waits=False) as live:
        began, may_end = threading.Event(), threading.Event()
        graph = live.graph()
        original = graph._opened.pinned

        def held(target: Any) -> Any:
            began.set()
            assert may_end.wait(60)
            return original(target)

        graph._opened.pinned = held  # type: ignore[method-assign]
        answers: list[httpx.Response] = []
        client = live.client("act-ana")
        asking = threading.Thread(
            target=lambda: answers.append(client.post("/query", json={"query": PEOPLE}))
        )
        asking.start()
        assert began.wait(60)
        revoked.write_text('{"actors": ["act-ana"]}')
        assert httpx.get(f"{live.url}/metrics", headers=bearer("act-bo")).status_code == 404
        assert status(live, TOKENS["act-ana"]) == 401
        may_end.set()
        asking.join(60)
        assert answers[0].status_code == 200
        assert client.post("/query", json={"query": PEOPLE}).status_code == 401


def test_failed_attempts_of_an_address_are_limited():
    moment = [0.0]
    attempts = Attempts(lambda: moment[0])
    attempts.succeeded("10.0.0.1", "good")
    for _ in range(ATTEMPTS_MAX):
        attempts.require("10.0.0.1", "bad")
        attempts.failed("10.0.0.1")
    with pytest.raises(TooManyRequests):
        attempts.require("10.0.0.1", "bad")
    with pytest.raises(TooManyRequests):
        attempts.require("10.0.0.1", "another, which may be good")
    attempts.require("10.0.0.1", "good")  # was accepted before: a neighbour locks nobody out
    attempts.require("10.0.0.2", "bad")
    moment[0] += ATTEMPT_SECONDS
    attempts.require("10.0.0.1", "bad")


def test_an_address_that_guesses_gets_429_and_probes_are_answered(spec: GraphSpec):
    with serving(spec, environment=with_tokens(), waits=False) as live:
        assert status(live, TOKENS["act-ana"]) == 200
        live.server.services.identities.attempts._full_at["127.0.0.1"] = time.monotonic() + 1e6
        assert status(live, "guess") == 429
        assert status(live, TOKENS["act-bo"]) == 429  # not looked at
        assert status(live, TOKENS["act-ana"]) == 200
        for headers in ({}, {"Authorization": "Bearer guess"}):
            assert httpx.get(f"{live.url}/readyz", headers=headers).status_code == 200
        without = httpx.get(f"{live.url}/graphs/default/schema")
        assert without.status_code == 401  # nothing was guessed


def test_an_actor_may_have_several_tokens():
    table = TokenTable([("act-ana", ["one", "two"]), ("act-bo", "three")])
    assert [table.actor_of(each) for each in ("one", "two", "three", "four")] == [
        "act-ana",
        "act-ana",
        "act-bo",
        None,
    ]
    blank: list[str] = []
    for bad in (
        [("a", ["x", "x"])],
        [("a", blank)],
        [("a", ["x", " "])],
        [("a", ["x"]), ("b", ["x"])],
    ):
        with pytest.raises(InputError):
            TokenTable(bad)


# --- TLS ------------------------------------------------------------------------------------------


def certificate(folder: Path) -> tuple[Path, Path]:
    """A certificate of 127.0.0.1 that signs itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.UTC)
    here = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([here]), critical=False)
        .sign(key, hashes.SHA256())
    )
    cert_file, key_file = folder / "cert.pem", folder / "key.pem"
    cert_file.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    key_file.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return cert_file, key_file


def test_tls_is_served_and_plain_http_is_not(spec: GraphSpec, tmp_path: Path):
    cert, key = certificate(tmp_path)
    with serving(spec, environment=with_tokens(), tls_cert=cert, tls_key=key, waits=False) as live:
        url = f"https://{live.server.address}"
        trusting = ssl.create_default_context(cafile=str(cert))
        with httpx.Client(verify=trusting, headers=bearer("act-ana")) as client:
            answer = client.post(f"{url}/graphs/default/query", json={"query": PEOPLE})
            assert answer.json()["row_count"] == 2
            big = client.get(f"{url}/openapi.json")
            assert len(big.content) > 50_000
        with pytest.raises(httpx.TransportError):
            httpx.get(live.url + "/healthz")
        with pytest.raises(httpx.ConnectError, match=r"(?i)certificate"):
            httpx.get(f"{url}/healthz")


def test_a_certificate_that_cannot_be_used_stops_the_start(spec: GraphSpec, tmp_path: Path):
    cert, key = certificate(tmp_path)
    with pytest.raises(InputError, match="belong together"):
        ServerConfig((spec,), tls_cert=cert)
    key.write_text("no key")
    with (
        pytest.raises(InputError, match="cannot be used"),
        serving(spec, tls_cert=cert, tls_key=key),
    ):
        pass


def test_plain_http_beyond_this_machine_is_warned_of(
    spec: GraphSpec, caplog: pytest.LogCaptureFixture
):
    with serving(spec, environment=with_tokens(), bind="0.0.0.0:0"):
        pass
    assert any("plain HTTP beyond this machine" in each.message for each in caplog.records)
    caplog.clear()
    with serving(spec, environment=with_tokens()):
        pass
    assert not any("plain HTTP" in each.message for each in caplog.records)
