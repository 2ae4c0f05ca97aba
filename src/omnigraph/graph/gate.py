"""The gate at the head of every write: may this handle write at all, and may this actor?

It stands here, below every face, so that the command line, a server and a notebook obey the same
rules, even if a transport forgets to check. Reads are not gated: a process that can open the
storage can read it. A write that takes data from a branch, or selects rows of one, needs `read` on
it as well: its result would show what the actor may not read.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from os import PathLike

from omnigraph.errors import InputError, PolicyDenied
from omnigraph.model.ids import check_declared_actor
from omnigraph.policy import Action, Decision, Policy
from omnigraph.review.requests import NO_REQUIREMENTS, Requirements
from omnigraph.storage.layout import MAIN


def check_graph_policy(policy: Policy | None) -> None:
    """Refuse the policy of a server, which decides nothing about a graph, and a mere path."""
    if isinstance(policy, str | PathLike):
        raise InputError(
            f"`policy` takes a loaded policy, not the path {str(policy)!r}",
            hint="from omnigraph.policy import load_policy, and pass load_policy(path)",
        )
    if policy is not None and policy.kind != "graph":
        raise InputError(
            f"{policy} decides about a server, not about a graph",
            hint="open the graph with the bundle of a graph",
        )
    if policy is not None and policy.has_views:
        raise InputError(
            f"{policy} limits rules to types, which this version checks and explains, but does "
            "not enforce yet",
            hint="leave `types` out of the rules",
        )


class WriteGate:
    """Refuses what this handle, or the actor of a write, may not do.

    There is one method for each kind of write, called before the write has done anything. Without a
    policy every write is allowed. With one, `PolicyDenied` is raised when no rule allows it or no
    actor is named, and `PolicyEvaluationFailed` when the policy cannot decide.
    """

    def __init__(
        self,
        policy: Policy | None,
        *,
        read_only: bool,
        audit: Callable[[Decision], None] = lambda decision: None,
    ) -> None:
        """``audit`` is told, before the write, of one that bypasses requirements."""
        check_graph_policy(policy)
        self._policy = policy
        self._read_only = read_only
        self._audit = audit

    def change(self, verb: str, actor: str | None, branch: str) -> None:
        """Before entities of a branch change."""
        self._permit(verb, actor, Action.CHANGE, branch, None)

    def select(self, verb: str, actor: str | None, branch: str) -> None:
        """Before a write selects rows to change: their number in the receipt reveals data."""
        self._permit(verb, actor, Action.READ, branch, None)

    def readable(self, actor: str | None) -> Callable[[str], bool]:
        """Which branches an actor may read: a write must not tell of commits on others."""
        policy = self._policy
        if policy is None or actor is None:
            return lambda branch: True
        return lambda branch: policy.decide(actor, Action.READ, branch=branch).allowed

    def replay(
        self, verb: str, actor: str | None, branch: str, authored_branch: Callable[[], str]
    ) -> bool:
        """Before a commit is replayed on a branch; False if the actor may not read the commit."""
        self.change(verb, actor, branch)
        if self._policy is None or actor is None:
            return True
        return self.readable(actor)(authored_branch())

    def load(
        self,
        actor: str | None,
        branch: str,
        from_: str | None,
        branches: Callable[[], Collection[str]],
    ) -> None:
        """Before a load; one that forks needs to be allowed both the branch and the change."""
        # The change comes first: a denial must not depend on whether the branch exists.
        self.change("load", actor, branch)
        if self._policy is not None and from_ is not None and branch not in branches():
            self.branch_create("load", actor, from_, branch)

    def schema_apply(self, actor: str | None) -> None:
        """Before the schema changes, which it does on main."""
        self._permit("schema apply", actor, Action.SCHEMA_APPLY, None, MAIN)

    def schema_rebase(self, actor: str | None, branch: str) -> None:
        """Before a branch gets the schema of main."""
        self._permit("schema rebase", actor, Action.SCHEMA_APPLY, None, branch)

    def branch_create(self, verb: str, actor: str | None, from_: str, name: str) -> None:
        """Before a branch is created from another."""
        self._permit(verb, actor, Action.BRANCH_CREATE, from_, name)
        self._permit(verb, actor, Action.READ, from_, None)

    def branch_delete(self, actor: str | None, name: str) -> None:
        """Before a branch is deleted, also after it was merged."""
        self._permit("branch delete", actor, Action.BRANCH_DELETE, None, name)

    def branch_merge(self, actor: str | None, source: str, target: str) -> None:
        """Before a branch is merged into another."""
        self._permit("branch merge", actor, Action.BRANCH_MERGE, source, target)
        self._permit("branch merge", actor, Action.READ, source, None)

    def review(self, verb: str, actor: str | None, source: str, target: str) -> None:
        """Before something is said about merging a branch into another: both can be read."""
        self._permit(verb, actor, Action.READ, source, None)
        self._permit(verb, actor, Action.READ, target, None)

    def review_of(
        self, verb: str, actor: str | None, author: str | None, source: str, target: str
    ) -> None:
        """Before a change request is edited, closed or reopened: by its author or who may merge."""
        self.review(verb, actor, source, target)
        if self._policy is not None and actor != author:
            self._permit(verb, actor, Action.BRANCH_MERGE, source, target)

    def tag_create(self, actor: str | None, name: str) -> None:
        """Before a tag is made, by its name; its commit has to be readable as well."""
        self._permit("tag create", actor, Action.TAG_CREATE, None, name)

    def tag_delete(self, actor: str | None, name: str) -> None:
        """Before a tag is deleted, by its name."""
        self._permit("tag delete", actor, Action.TAG_DELETE, None, name)

    def review_merge(self, actor: str | None, source: str, target: str) -> None:
        """Before a change request is merged, which has to fulfil what its target requires."""
        verb = "review merge"
        self._permit(verb, actor, Action.BRANCH_MERGE, source, target, reviewed=True)
        self._permit(verb, actor, Action.READ, source, None)

    def check_report(self, verb: str, actor: str | None, source: str) -> None:
        """Before the result of a check is taken from a caller."""
        self._permit(verb, actor, Action.CHECK_REPORT, source, None)

    def requirements(self, branch: str) -> Requirements:
        """What a change request needs before it may be merged into a branch."""
        found = None if self._policy is None else self._policy.requirements_on(branch)
        if self._policy is None or found is None:
            return NO_REQUIREMENTS
        group = found.from_group
        return Requirements(
            found.approvals,
            None if group is None else frozenset(self._policy.bundle.groups[group]),
            group,
            found.checks,
            found.resolved_comments,
            found.up_to_date,
        )

    def require_writable(self, verb: str) -> None:
        """Before upkeep, which no policy decides: the operator of the storage does it."""
        if self._read_only:
            raise InputError(
                f"`{verb}` needs a graph opened for writing", hint='open it with mode="read_write"'
            )

    def _permit(
        self,
        verb: str,
        actor: str | None,
        action: Action,
        branch: str | None,
        target_branch: str | None,
        *,
        reviewed: bool = False,
    ) -> None:
        self.require_writable(verb)
        if actor is not None:
            check_declared_actor(actor, where="the actor of a write")
        if self._policy is None:
            return
        if actor is None:
            raise PolicyDenied(
                f"`{verb}` needs an actor, because this graph has a policy",
                action=action,
                actor=None,
                branch=branch,
                target_branch=target_branch,
                hint="say who writes with `actor`",
            )
        decision = self._policy.decide(
            actor, action, branch=branch, target_branch=target_branch, reviewed=reviewed
        )
        decision.require()
        if decision.is_bypass:
            self._audit(decision)
