"""Who may do what: bundles of rules, compiled to Cedar, and decisions.

A policy only allows; what no rule grants is denied. This room knows actors, actions and branches,
and nothing of tokens, requests or storage.
"""

from __future__ import annotations

from omnigraph.policy.actions import Action, PolicyKind, Scope
from omnigraph.policy.bundle import Bundle, Rule, parse_bundle
from omnigraph.policy.cases import Case, Failure, parse_cases, run_cases
from omnigraph.policy.decide import Decision, Policy, load_policy

__all__ = [
    "Action",
    "Bundle",
    "Case",
    "Decision",
    "Failure",
    "Policy",
    "PolicyKind",
    "Rule",
    "Scope",
    "load_policy",
    "parse_bundle",
    "parse_cases",
    "run_cases",
]
