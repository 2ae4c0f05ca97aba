"""Access control: bundles of rules, compiled to Cedar, and decisions.

Rules only allow: without a rule, an action is denied. This room deals with actors, actions and
branches, and does not depend on tokens, requests or storage.

Actors and actions are imported by every graph; the code for bundles only if there is one.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from omnigraph.policy.identity import (
    Action,
    Actor,
    ClaimTest,
    ClaimValue,
    Identity,
    PolicyKind,
    identity_of,
)

if TYPE_CHECKING:
    from omnigraph.policy.bundle import (
        BranchProtection,
        BranchRequirements,
        Bundle,
        PolicyRule,
        TypeGrant,
        parse_bundle,
    )
    from omnigraph.policy.decide import (
        CaseFailure,
        Decision,
        Policy,
        PolicyCase,
        load_policy,
        parse_cases,
        run_cases,
    )

__all__ = [
    "Action",
    "Actor",
    "BranchProtection",
    "BranchRequirements",
    "Bundle",
    "CaseFailure",
    "ClaimTest",
    "ClaimValue",
    "Decision",
    "Identity",
    "Policy",
    "PolicyCase",
    "PolicyKind",
    "PolicyRule",
    "TypeGrant",
    "identity_of",
    "load_policy",
    "parse_bundle",
    "parse_cases",
    "run_cases",
]

_MODULES = ("bundle", "decide")


def __getattr__(name: str) -> object:
    """Import a name's module on first use."""
    if name in __all__:
        for module in _MODULES:
            found = vars(import_module(f"omnigraph.policy.{module}"))
            if name in found:
                return found[name]
    raise AttributeError(f"module 'omnigraph.policy' has no attribute {name!r}")
