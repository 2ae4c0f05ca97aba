"""The actor is unknown, may not do this, or nobody can tell."""

from __future__ import annotations

from omnigraph.errors.base import OmnigraphError


class Denied(OmnigraphError, PermissionError):
    """Policy refused the action."""

    code = "forbidden"
    wire_code = "forbidden"


class PolicyDenied(Denied):
    """No rule of the graph's policy allows this to the actor, or there is no actor."""

    code = "policy_denied"

    def __init__(
        self,
        message: str,
        *,
        action: str,
        actor: str | None,
        branch: str | None = None,
        target_branch: str | None = None,
        hint: str | None = None,
    ) -> None:
        facts = {"branch": branch, "target_branch": target_branch}
        given = {name: value for name, value in facts.items() if value is not None}
        super().__init__(message, hint=hint, details={"action": action, "actor_id": actor, **given})
        self.action = action
        self.actor = actor
        self.branch = branch
        self.target_branch = target_branch


class PolicyEvaluationFailed(OmnigraphError):
    """The policy could not answer; this is neither an allow nor a denial, and nothing was done."""

    code = "policy_evaluation_failed"


class Unauthenticated(OmnigraphError):
    """No valid credential came with the request."""

    code = "unauthorized"
    wire_code = "unauthorized"
