"""Who calls, and what is written down of it: identities from tokens.

This room knows tokens, keys and addresses, and nothing of rules, requests and graphs.
"""

from __future__ import annotations

from omnigraph.access.identity import Caller, Identities, JwtSettings

__all__ = ["Caller", "Identities", "JwtSettings"]
