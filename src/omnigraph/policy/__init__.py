"""Access control: bundles of rules, compiled to Cedar, and decisions.

Rules only allow; what no rule grants is denied. This room knows actors, actions and branches,
and nothing of tokens, requests or storage.
"""

from __future__ import annotations

from omnigraph.policy.bundle import (
    Action,
    BranchProtection,
    BranchRequirements,
    Bundle,
    PolicyKind,
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
from omnigraph.policy.identity import Actor, ClaimTest, ClaimValue, Identity, identity_of

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
