"""An identity provider for tests: keys, a JWKS, and tokens that it signs."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec

from omnigraph.access.identity import JwtSettings

ISSUER = "https://login.example"
AUDIENCE = "omnigraph"


class Provider:
    """Signs tokens with its newest key."""

    def __init__(self, keys: Path) -> None:
        self.path = keys
        self._keys: dict[str, ec.EllipticCurvePrivateKey] = {}
        self.rotate("key-1")

    @property
    def settings(self) -> JwtSettings:
        return JwtSettings(ISSUER, AUDIENCE, str(self.path))

    def rotate(self, kid: str, *, keeps: bool = False) -> None:
        """Make a new key, and publish it alone or beside those before."""
        fresh = {kid: ec.generate_private_key(ec.SECP256R1())}
        self._keys = {**self._keys, **fresh} if keeps else fresh
        self.kid = kid
        # Replaced, not overwritten, as a mounted file is: a reader sees one or the other.
        following = self.path.with_suffix(".next")
        following.write_text(json.dumps(self.jwks()))
        following.replace(self.path)

    def jwks(self) -> dict[str, Any]:
        algorithm = jwt.algorithms.ECAlgorithm(jwt.algorithms.ECAlgorithm.SHA256)
        return {
            "keys": [
                {**algorithm.to_jwk(key.public_key(), as_dict=True), "kid": kid, "alg": "ES256"}
                for kid, key in self._keys.items()
            ]
        }

    def claims(self, actor: str = "act-ana", **more: Any) -> dict[str, Any]:
        now = int(time.time())
        plain = {"iss": ISSUER, "aud": AUDIENCE, "sub": actor, "iat": now, "exp": now + 600}
        return {name: value for name, value in {**plain, **more}.items() if value is not None}

    def token(self, actor: str = "act-ana", **more: Any) -> str:
        headers = {"kid": self.kid}
        return jwt.encode(self.claims(actor, **more), self._keys[self.kid], "ES256", headers)

    def headers(self, actor: str = "act-ana", **more: Any) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token(actor, **more)}"}
