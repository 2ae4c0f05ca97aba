"""The gate: the only place where verbs are checked against the policy.

Every verb of `Graph` calls it first, so the command line, servers, MCP, Spark and notebooks obey
the same rules. A server also asks it before the verb, where the decision must precede admission or
reading the body; the verb then reuses the decision.

Writes are decided if the graph has a policy. Reads are decided for callers of a server
(`Access.is_served`), and if rules are limited to types, because visibility then depends on the
actor. Otherwise every process that can open the storage may read it and run upkeep; bundles of
version 2 decide upkeep by the action `maintain`. A write that copies data from a branch, or selects
rows of one, also needs `read` on it, because its result reveals data.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection
from dataclasses import replace
from functools import cache, cached_property, lru_cache
from os import PathLike
from typing import TYPE_CHECKING, TypeAlias

from omnigraph.errors import InputError
from omnigraph.model.ids import MAIN_BRANCH, check_declared_actor
from omnigraph.model.records import dataclass
from omnigraph.policy import Action, Identity
from omnigraph.storage.layout import MAIN

if TYPE_CHECKING:
    from omnigraph.audit import Asked, Auditor
    from omnigraph.policy import Decision, Policy
    from omnigraph.review.requirements import Requirements

DECISIONS_KEPT_MAX = 4096


def check_graph_policy(policy: Policy | None) -> None:
    """Raise `InputError` for a server policy, which has no rules for graphs, and for a path."""
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


@dataclass(frozen=True, slots=True)
class Question:
    """One action on up to two branches, for the gate to decide."""

    action: Action
    branch: str | None = None
    target_branch: str | None = None
    reviewed: bool = False
    """Whether it is the merge of a change request, which must fulfil the target's requirements."""


Decided: TypeAlias = "dict[tuple[Identity | None, Question], Decision]"


@dataclass(frozen=True, slots=True)
class Access:
    """The identity and permissions of a handle's verbs, and the origin of the call."""

    identity: Identity | None = None
    """The actor; None if the call names no actor."""
    is_served: bool = False
    """Whether the caller uses a server, or is treated so: its reads are decided, too."""
    is_system: bool = False
    """Whether the product itself acts, such as a server that runs checks of change requests."""
    without_policy: frozenset[Action] | None = None
    """The actions allowed on a graph without a policy; None for all."""
    request_id: str | None = None
    address: str | None = None
    """The network address of the request."""
    decided: Decided | None = None
    """The decisions of one request, each made and recorded once; None outside of requests."""
    told: Callable[[Decision], None] | None = None
    """Called with every decision."""

    @property
    def actor(self) -> str | None:
        """The id of the actor, if any."""
        return None if self.identity is None else self.identity.id

    def by(self, actor: str | None) -> Access:
        """This access, for the actor that a verb names, if any."""
        if actor is None or actor == self.actor:
            return self
        return replace(self, identity=Identity(actor))


UNNAMED = Access()
SYSTEM = Access(is_system=True)


class Gate:
    """Refuses verbs that the handle or the actor may not use.

    There is one method per kind of access. Without a policy, `Access.without_policy` decides. With
    a policy, `PolicyDenied` is raised if no rule allows the action or no actor is named, and
    `PolicyEvaluationFailed` if the policy cannot be evaluated.
    """

    def __init__(
        self,
        policy: Policy | None,
        *,
        read_only: bool,
        bypassed: Callable[[Decision], None] = lambda decision: None,
        auditor: Auditor | None = None,
    ) -> None:
        """``bypassed`` is called, before the write, with each decision that bypasses requirements.

        ``auditor`` records every decision before the verb continues.
        """
        check_graph_policy(policy)
        self._policy = policy
        self._read_only = read_only
        self._bypassed = bypassed
        self._auditor = auditor
        self._decide = lru_cache(DECISIONS_KEPT_MAX)(self._decided_by_policy)

    @cached_property
    def ahead(self) -> Gate:
        """The gate for decisions before the verb; records no bypass: the verb may not run."""
        found = copy.copy(self)
        found._bypassed = lambda decision: None
        return found

    # --- reading ----------------------------------------------------------------------------------

    def read(self, verb: str, by: Access, branch: str | None, action: Action = Action.READ) -> None:
        """Check a read of a branch, or of the graph as a whole."""
        if self.decides_reads(by):
            self._require(verb, by, Question(action, branch))
        else:
            self._report(by, _undecided(by, Question(action, branch)))

    def decides_reads(self, by: Access) -> bool:
        """Whether the policy decides reads; otherwise access to the storage is enough."""
        policy = self._policy
        if by.is_system:
            return False
        if policy is None:
            return by.without_policy is not None
        return by.is_served or policy.has_views

    def may_read(self, by: Access, branch: str, action: Action = Action.READ) -> bool:
        """Whether a branch may be read; records the decision."""
        if not self.decides_reads(by):
            return True
        return self._decide_once(by, Question(action, branch)).allowed

    def shown_branches(self, by: Access) -> Callable[[str], bool]:
        """A predicate of visible branches: names of commits must not reveal others."""
        if not self.decides_reads(by):
            return lambda branch: True
        return lambda branch: self.allows(by, Question(Action.READ, branch))

    def invoke_query(self, by: Access) -> bool:
        """Whether stored queries may be called; if not, they are hidden."""
        return self._decide_once(by, Question(Action.INVOKE_QUERY)).allowed

    # --- writing ----------------------------------------------------------------------------------

    def change(self, verb: str, by: Access, branch: str) -> None:
        """Check a change of entities on a branch."""
        self._permit(verb, by, Action.CHANGE, branch, None)

    def select(self, verb: str, by: Access, branch: str) -> None:
        """Check a write that selects rows: their number in the receipt reveals data."""
        self._permit(verb, by, Action.READ, branch, None)

    def readable(self, by: Access) -> Callable[[str], bool]:
        """A predicate of readable branches: a write must not reveal commits of others."""
        if self._policy is None or by.identity is None:
            return lambda branch: True
        return lambda branch: self.allows(by, Question(Action.READ, branch))

    def replay(
        self, verb: str, by: Access, branch: str, authored_branch: Callable[[], str | None]
    ) -> bool:
        """Check a replay of a commit; False if the actor may not read the commit."""
        self.change(verb, by, branch)
        if self._policy is None or by.identity is None:
            return True
        found = authored_branch()
        return found is not None and self._decide_once(by, Question(Action.READ, found)).allowed

    def load(
        self,
        by: Access,
        branch: str,
        from_: str | None,
        branches: Callable[[], Collection[str]],
    ) -> None:
        """Check a load; one that creates its branch needs the right to do so, too."""
        # `change` is checked first: the error must not depend on whether the branch exists.
        self.change("load", by, branch)
        decides = self._policy is not None or by.without_policy is not None
        if decides and from_ is not None and branch not in branches():
            self.branch_create("load", by, from_, branch)

    def schema_apply(self, by: Access) -> None:
        """Check a schema change, which is made on main."""
        self._permit("schema apply", by, Action.SCHEMA_APPLY, None, MAIN)

    def schema_rebase(self, by: Access, branch: str) -> None:
        """Check a rebase of a branch to the schema of main."""
        self._permit("schema rebase", by, Action.SCHEMA_APPLY, None, branch)

    def branch_create(self, verb: str, by: Access, from_: str, name: str) -> None:
        """Check the creation of a branch."""
        self._permit(verb, by, Action.BRANCH_CREATE, from_, name)
        self._permit(verb, by, Action.READ, from_, None)

    def branch_delete(self, by: Access, name: str) -> None:
        """Check the deletion of a branch, including one after a merge."""
        self._permit("branch delete", by, Action.BRANCH_DELETE, None, name)

    def branch_merge(self, by: Access, source: str, target: str) -> None:
        """Check a merge."""
        self._permit("branch merge", by, Action.BRANCH_MERGE, source, target)
        self._permit("branch merge", by, Action.READ, source, None)

    def tag_create(self, by: Access, name: str) -> None:
        """Check the creation of a tag, by its name; its commit must be readable, too."""
        self._permit("tag create", by, Action.TAG_CREATE, None, name)

    def tag_delete(self, by: Access, name: str) -> None:
        """Check the deletion of a tag, by its name."""
        self._permit("tag delete", by, Action.TAG_DELETE, None, name)

    # --- change requests --------------------------------------------------------------------------

    def review(self, verb: str, by: Access, source: str, target: str) -> None:
        """Check an action on a change request: both branches must be readable."""
        self._permit(verb, by, Action.READ, source, None)
        self._permit(verb, by, Action.READ, target, None)

    def review_of(
        self, verb: str, by: Access, author: str | None, source: str, target: str
    ) -> None:
        """Check editing, closing or reopening a request: by its author, or with merge rights."""
        self.review(verb, by, source, target)
        if self._policy is not None and by.actor != author:
            self._permit(verb, by, Action.BRANCH_MERGE, source, target)

    def review_merge(self, by: Access, source: str, target: str) -> None:
        """Check the merge of a change request, which must fulfil the target's requirements."""
        verb = "review merge"
        self._permit(verb, by, Action.BRANCH_MERGE, source, target, reviewed=True)
        self._permit(verb, by, Action.READ, source, None)

    def check_report(self, verb: str, by: Access, source: str) -> None:
        """Check the report of a check result."""
        self._permit(verb, by, Action.CHECK_REPORT, source, None)

    def requirements(self, branch: str) -> Requirements:
        """The requirements for merging a change request into a branch."""
        from omnigraph.review.requirements import NO_REQUIREMENTS, Requirements

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

    # --- upkeep -----------------------------------------------------------------------------------

    def maintain(self, verb: str, by: Access, *, writes: bool = True) -> None:
        """Check upkeep; bundles of version 1 leave it to the operator of the storage."""
        if writes:
            self._require_writable(verb)
        question = Question(Action.MAINTAIN)
        decides = self._policy is not None and self._policy.decides_upkeep
        if not by.is_system and (decides or by.without_policy is not None):
            self._require(verb, by, question)
        else:
            self._report(by, _undecided(by, question))

    def numbers(self, by: Access, branch: str) -> None:
        """Check reading statistics: as upkeep, if the policy decides that."""
        if self._policy is not None and self._policy.decides_upkeep:
            self.maintain("stats", by, writes=False)
        else:
            self.read("stats", by, None)
            self.read("stats", by, branch)

    # --- for shaping answers: not recorded as decisions -------------------------------------------

    def allows(self, by: Access, question: Question) -> bool:
        """Whether an action would be allowed, to shape an answer; records no decision."""
        return self._found(by, question).allowed

    def allows_somewhere(self, by: Access, action: Action) -> bool:
        """Whether the rules allow an action on any kind of branch, existing or not."""
        return any(
            self.allows(by, question)
            for name in self.kinds_of_branch()
            for question in (Question(action, name), Question(action, None, name, reviewed=True))
        )

    def kinds_of_branch(self) -> tuple[str, ...]:
        """One branch name for each kind of branch that rules distinguish."""
        if self._policy is None:
            return (MAIN_BRANCH,)
        protected = self._policy.protected_branches
        other = MAIN_BRANCH
        while other in protected:
            other += "-"
        return (other, *sorted(protected)[:1], *self._policy.branches_of_rules)

    # --- deciding ---------------------------------------------------------------------------------

    def _permit(
        self,
        verb: str,
        by: Access,
        action: Action,
        branch: str | None,
        target_branch: str | None,
        *,
        reviewed: bool = False,
    ) -> None:
        """Check a write; raises unless it is allowed."""
        self._require_writable(verb)
        if by.actor is not None:
            check_declared_actor(by.actor, where="the actor of a write")
        if self._policy is None and by is UNNAMED and self._auditor is None:
            return  # no policy to ask, and no audit to record it
        decision = self._require(verb, by, Question(action, branch, target_branch, reviewed))
        if decision.is_bypass:
            self._bypassed(decision)

    def _require_writable(self, verb: str) -> None:
        if self._read_only:
            raise InputError(
                f"`{verb}` needs a graph opened for writing", hint='open it with mode="read_write"'
            )

    def _require(self, verb: str, by: Access, question: Question) -> Decision:
        """The decision, if it allows the action; raises `PolicyDenied`."""
        if self._policy is not None and by.identity is None:
            denied = _unnamed(verb, question)
            self._report(by, denied)
            denied.require(_UNNAMED_HINTS.get(question.action, "say who writes with `actor`"))
        decision = self._decide_once(by, question)
        if by.is_served:
            decision.require(None)  # callers of a server do not see the bundle
        else:
            decision.require()
        return decision

    def _decide_once(self, by: Access, question: Question) -> Decision:
        """Decide a question; recorded once per request."""
        if by.decided is None:
            decision = self._found(by, question)
            self._report(by, decision)
            return decision
        key = (by.identity, question)
        known = by.decided.get(key)
        if known is not None:
            if self._auditor is not None:
                self._auditor.seen(_asked(by, known))
            return known
        decision = by.decided[key] = self._found(by, question)
        self._report(by, decision)
        return decision

    def _report(self, by: Access, decision: Decision) -> None:
        if by.told is not None:
            by.told(decision)
        if self._auditor is not None and not by.is_system:
            self._auditor.decided(_asked(by, decision))

    def _found(self, by: Access, question: Question) -> Decision:
        if self._policy is None:
            return _without_policy(by, question)
        if by.identity is None:
            return _unnamed(question.action, question)
        return self._decide(by.identity, question)

    def _decided_by_policy(self, identity: Identity, question: Question) -> Decision:
        assert self._policy is not None
        return self._policy.decide(
            identity,
            question.action,
            branch=question.branch,
            target_branch=question.target_branch,
            reviewed=question.reviewed,
        )


_NAME_AN_ACTOR = "open it for an actor with `graph.acting_as(actor)`"
_UNNAMED_HINTS = dict.fromkeys((Action.READ, Action.EXPORT, Action.MAINTAIN), _NAME_AN_ACTOR)


@cache
def _asked_type() -> type[Asked]:
    """The audit's type of decisions, imported only if there is an audit."""
    from omnigraph.audit import Asked

    return Asked


def _asked(by: Access, decision: Decision) -> Asked:
    return _asked_type()(
        by.actor,
        by.request_id,
        by.address,
        decision.action.value,
        decision.branch,
        decision.target_branch,
        decision.allowed,
        decision.matched_rule_id,
    )


def _undecided(by: Access, question: Question) -> Decision:
    return _decision(by, question, True, "every process that can open the storage may")


def _unnamed(verb: str, question: Question) -> Decision:
    message = f"`{verb}` needs an actor, because this graph has a policy"
    return _decision(UNNAMED, question, False, message)


def _without_policy(by: Access, question: Question) -> Decision:
    if by.without_policy is None or question.action in by.without_policy:
        return _decision(by, question, True, "the graph has no policy")
    message = (
        f"without a policy, actor `{by.actor}` may only read; `serve --policy` gives the server one"
    )
    return _decision(by, question, False, message)


def _decision(by: Access, question: Question, allowed: bool, message: str) -> Decision:
    """A decision made without rules."""
    from omnigraph.policy import Decision

    asked = question.action
    return Decision(
        allowed, by.actor, asked, question.branch, question.target_branch, None, message
    )
