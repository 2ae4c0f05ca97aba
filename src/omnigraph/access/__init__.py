"""Authentication: identities from tokens.

This room deals with tokens, keys and addresses, and does not depend on rules, requests and graphs.
"""

from __future__ import annotations

from omnigraph.access.identity import Caller, Identities, JwtSettings

__all__ = ["Caller", "Identities", "JwtSettings"]
