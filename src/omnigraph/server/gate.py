"""May this caller do this? The three states a server can be in, and their answers."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from omnigraph.errors import InputError
from omnigraph.policy import Action, Policy

DECISIONS_KEPT_MAX = 4096


class RuntimeState(StrEnum):
    """What protects a server."""

    OPEN = "open"
    """Nothing: whoever reaches the port may do everything to the graphs."""
    DEFAULT_DENY = "default_deny"
    """Tokens, and no policy: their holders may read."""
    POLICY_ENABLED = "policy_enabled"
    """Tokens, and a policy."""


def runtime_state(*, has_tokens: bool, has_bundle: bool, unauthenticated: bool) -> RuntimeState:
    """The state of a server; raises `InputError` where it must not start."""
    if has_tokens:
        return RuntimeState.POLICY_ENABLED if has_bundle else RuntimeState.DEFAULT_DENY
    if has_bundle:
        raise InputError(
            "there is a policy and there are no tokens, so nobody could be told from anybody",
            hint="set `OMNIGRAPH_SERVER_BEARER_TOKENS_FILE` or another source of tokens",
        )
    if not unauthenticated:
        raise InputError(
            "there are neither tokens nor a policy, so anybody could change the graph",
            hint="set `OMNIGRAPH_SERVER_BEARER_TOKEN`, or pass `--unauthenticated` to mean it",
        )
    return RuntimeState.OPEN


@dataclass(frozen=True, slots=True)
class Question:
    """What a caller wants to do."""

    action: Action
    branch: str | None = None
    target_branch: str | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer to a question."""

    allowed: bool
    matched_rule_id: str | None
    message: str


_OPEN = Verdict(True, None, "the server is open")


class Gate:
    """Decides for one graph, or for the server itself. Decisions need no I/O and are remembered."""

    def __init__(self, state: RuntimeState, policy: Policy | None) -> None:
        self._state = state
        self._policy = policy
        self.decide = lru_cache(DECISIONS_KEPT_MAX)(self._decide)

    def _decide(self, actor: str | None, question: Question) -> Verdict:
        if question.action is Action.GRAPH_LIST and self._policy is None:
            return Verdict(
                False, None, "`graph_list` is denied: the server has no policy that allows it"
            )
        if self._state is RuntimeState.OPEN:
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
        )
        return Verdict(found.allowed, found.matched_rule_id, found.message)
