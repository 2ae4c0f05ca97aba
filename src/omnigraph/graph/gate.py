"""The gate: the one place where a verb meets the policy, whichever face it was called from.

Every verb of `Graph` calls it before it has done anything: the command line, a server, MCP, Spark
and a notebook obey the same rules. A server asks it ahead of the verb where the decision has to
come before admission or before a body is read; the verb then finds the decision made.

Writes are decided wherever a graph has a policy. Reads are decided for callers that are served
(`Access.is_served`), and wherever rules limit types: what an actor sees depends on who it is then.
Otherwise every process that can open the storage may read it, and the operator of the storage runs
upkeep; bundles of version 2 decide upkeep by `maintain`. A write that takes data from a branch, or
selects rows of one, needs `read` on it as well: its result would show what the actor may not read.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache
from os import PathLike
from typing import TYPE_CHECKING, TypeAlias

from omnigraph.errors import InputError
from omnigraph.model.ids import MAIN_BRANCH, check_declared_actor
from omnigraph.policy import Action, Identity
from omnigraph.storage.layout import MAIN

if TYPE_CHECKING:
    from omnigraph.audit import Asked, Auditor
    from omnigraph.policy import Decision, Policy
    from omnigraph.review.requirements import Requirements

DECISIONS_KEPT_MAX = 4096


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


@dataclass(frozen=True, slots=True)
class Question:
    """One action on one branch, or on two, that the gate is asked to allow."""

    action: Action
    branch: str | None = None
    target_branch: str | None = None
    reviewed: bool = False
    """Whether a change request is to be merged, which has to fulfil what its target requires."""


Decided: TypeAlias = "dict[tuple[Identity | None, Question], Decision]"


@dataclass(frozen=True, slots=True)
class Access:
    """The actor for whom the verbs of a handle act, and how the call arrived."""

    identity: Identity | None = None
    """The actor; None if the call names none."""
    is_served: bool = False
    """Whether it is a caller of a server, or stands for one: its reads are decided as well."""
    is_system: bool = False
    """Whether the product itself acts, as a server that runs the checks of change requests."""
    without_policy: frozenset[Action] | None = None
    """What it may do with a graph that has no policy; None for everything."""
    request_id: str | None = None
    address: str | None = None
    """Where the request came from."""
    decided: Decided | None = None
    """The decisions of one request, each made and recorded once; None for a handle that stays."""
    told: Callable[[Decision], None] | None = None
    """Called with every decision as it is made."""

    @property
    def actor(self) -> str | None:
        """The id of the actor, if one is named."""
        return None if self.identity is None else self.identity.id

    def by(self, actor: str | None) -> Access:
        """The same, for the actor that a verb names; without one, for its own."""
        if actor is None or actor == self.actor:
            return self
        return replace(self, identity=Identity(actor))


UNNAMED = Access()
SYSTEM = Access(is_system=True)


class Gate:
    """Refuses what a handle, or the actor of a verb, may not do.

    There is one method for each kind of access. Without a policy everything is allowed that the
    access says. With one, `PolicyDenied` is raised when no rule allows it or no actor is named, and
    `PolicyEvaluationFailed` when the policy cannot decide.
    """

    def __init__(
        self,
        policy: Policy | None,
        *,
        read_only: bool,
        bypassed: Callable[[Decision], None] = lambda decision: None,
        auditor: Auditor | None = None,
    ) -> None:
        """``bypassed`` is called, before the write, with a decision that bypasses requirements.

        ``auditor`` records every decision before what it allows is done.
        """
        check_graph_policy(policy)
        self._policy = policy
        self._read_only = read_only
        self._bypassed = bypassed
        self._auditor = auditor
        self._decide = lru_cache(DECISIONS_KEPT_MAX)(self._decided_by_policy)

    @cached_property
    def ahead(self) -> Gate:
        """The same gate, asked before the verb runs; it records no bypass: the verb may not run."""
        found = copy.copy(self)
        found._bypassed = lambda decision: None
        return found

    # --- reading ----------------------------------------------------------------------------------

    def read(self, verb: str, by: Access, branch: str | None, action: Action = Action.READ) -> None:
        """Before something is read: of a branch, or of the graph as a whole."""
        if self.decides_reads(by):
            self._require(verb, by, Question(action, branch))
        else:
            self._told(by, _undecided(by, Question(action, branch)))

    def decides_reads(self, by: Access) -> bool:
        """Whether the policy decides reads; otherwise access to the storage does."""
        policy = self._policy
        if by.is_system:
            return False
        if policy is None:
            return by.without_policy is not None
        return by.is_served or policy.has_views

    def may_read(self, by: Access, branch: str, action: Action = Action.READ) -> bool:
        """Whether a branch may be read; the decision is recorded, whatever the caller does then."""
        if not self.decides_reads(by):
            return True
        return self._answer(by, Question(action, branch)).allowed

    def shown_branches(self, by: Access) -> Callable[[str], bool]:
        """Which branches exist for a read, so that names of commits lead to no others."""
        if not self.decides_reads(by):
            return lambda branch: True
        return lambda branch: self.allows(by, Question(Action.READ, branch))

    def invoke_query(self, by: Access) -> bool:
        """Whether stored queries may be called; if not, there are none."""
        return self._answer(by, Question(Action.INVOKE_QUERY)).allowed

    # --- writing ----------------------------------------------------------------------------------

    def change(self, verb: str, by: Access, branch: str) -> None:
        """Before entities of a branch change."""
        self._permit(verb, by, Action.CHANGE, branch, None)

    def select(self, verb: str, by: Access, branch: str) -> None:
        """Before a write selects rows to change: their number in the receipt reveals data."""
        self._permit(verb, by, Action.READ, branch, None)

    def readable(self, by: Access) -> Callable[[str], bool]:
        """Which branches an actor may read: a write must not reveal commits on others."""
        if self._policy is None or by.identity is None:
            return lambda branch: True
        return lambda branch: self.allows(by, Question(Action.READ, branch))

    def replay(
        self, verb: str, by: Access, branch: str, authored_branch: Callable[[], str | None]
    ) -> bool:
        """Before a commit is replayed on a branch; False if the actor may not read the commit."""
        self.change(verb, by, branch)
        if self._policy is None or by.identity is None:
            return True
        found = authored_branch()
        return found is not None and self._answer(by, Question(Action.READ, found)).allowed

    def load(
        self,
        by: Access,
        branch: str,
        from_: str | None,
        branches: Callable[[], Collection[str]],
    ) -> None:
        """Before a load; one that forks needs to be allowed both the branch and the change."""
        # The change comes first: a denial must not depend on whether the branch exists.
        self.change("load", by, branch)
        decides = self._policy is not None or by.without_policy is not None
        if decides and from_ is not None and branch not in branches():
            self.branch_create("load", by, from_, branch)

    def schema_apply(self, by: Access) -> None:
        """Before the schema changes, which it does on main."""
        self._permit("schema apply", by, Action.SCHEMA_APPLY, None, MAIN)

    def schema_rebase(self, by: Access, branch: str) -> None:
        """Before a branch gets the schema of main."""
        self._permit("schema rebase", by, Action.SCHEMA_APPLY, None, branch)

    def branch_create(self, verb: str, by: Access, from_: str, name: str) -> None:
        """Before a branch is created from another."""
        self._permit(verb, by, Action.BRANCH_CREATE, from_, name)
        self._permit(verb, by, Action.READ, from_, None)

    def branch_delete(self, by: Access, name: str) -> None:
        """Before a branch is deleted, also after it was merged."""
        self._permit("branch delete", by, Action.BRANCH_DELETE, None, name)

    def branch_merge(self, by: Access, source: str, target: str) -> None:
        """Before a branch is merged into another."""
        self._permit("branch merge", by, Action.BRANCH_MERGE, source, target)
        self._permit("branch merge", by, Action.READ, source, None)

    def tag_create(self, by: Access, name: str) -> None:
        """Before a tag is made, by its name; its commit has to be readable as well."""
        self._permit("tag create", by, Action.TAG_CREATE, None, name)

    def tag_delete(self, by: Access, name: str) -> None:
        """Before a tag is deleted, by its name."""
        self._permit("tag delete", by, Action.TAG_DELETE, None, name)

    # --- change requests --------------------------------------------------------------------------

    def review(self, verb: str, by: Access, source: str, target: str) -> None:
        """Before something is said about merging a branch into another: both can be read."""
        self._permit(verb, by, Action.READ, source, None)
        self._permit(verb, by, Action.READ, target, None)

    def review_of(
        self, verb: str, by: Access, author: str | None, source: str, target: str
    ) -> None:
        """Before a change request is edited, closed or reopened: by its author or who may merge."""
        self.review(verb, by, source, target)
        if self._policy is not None and by.actor != author:
            self._permit(verb, by, Action.BRANCH_MERGE, source, target)

    def review_merge(self, by: Access, source: str, target: str) -> None:
        """Before a change request is merged, which has to fulfil what its target requires."""
        verb = "review merge"
        self._permit(verb, by, Action.BRANCH_MERGE, source, target, reviewed=True)
        self._permit(verb, by, Action.READ, source, None)

    def check_report(self, verb: str, by: Access, source: str) -> None:
        """Before the result of a check is taken from a caller."""
        self._permit(verb, by, Action.CHECK_REPORT, source, None)

    def requirements(self, branch: str) -> Requirements:
        """What a change request needs before it may be merged into a branch."""
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
        """Before upkeep; bundles of version 1 leave it to the operator of the storage."""
        if writes:
            self._require_writable(verb)
        question = Question(Action.MAINTAIN)
        decides = self._policy is not None and self._policy.decides_upkeep
        if not by.is_system and (decides or by.without_policy is not None):
            self._require(verb, by, question)
        else:
            self._told(by, _undecided(by, question))

    def numbers(self, by: Access, branch: str) -> None:
        """Before the numbers of a graph are read: upkeep, where the policy decides that."""
        if self._policy is not None and self._policy.decides_upkeep:
            self.maintain("stats", by, writes=False)
        else:
            self.read("stats", by, None)
            self.read("stats", by, branch)

    # --- what an answer shows, which is no decision -----------------------------------------------

    def allows(self, by: Access, question: Question) -> bool:
        """Whether it would be allowed; for what an answer shows, so no decision is recorded."""
        return self._found(by, question).allowed

    def allows_somewhere(self, by: Access, action: Action) -> bool:
        """Whether the rules allow it on any kind of branch, existing or not."""
        return any(
            self.allows(by, question)
            for name in self.kinds_of_branch()
            for question in (Question(action, name), Question(action, None, name, reviewed=True))
        )

    def kinds_of_branch(self) -> tuple[str, ...]:
        """A name for each kind of branch that a rule can tell from others."""
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
        """Let a write go on, or refuse it."""
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
        """The decision, if it allows; raises `PolicyDenied`."""
        if self._policy is not None and by.identity is None:
            denied = _unnamed(verb, question)
            self._told(by, denied)
            denied.require(_UNNAMED_HINTS.get(question.action, "say who writes with `actor`"))
        decision = self._answer(by, question)
        if by.is_served:
            decision.require(None)  # a caller has no bundle to look at
        else:
            decision.require()
        return decision

    def _answer(self, by: Access, question: Question) -> Decision:
        """The decision, which is recorded once for each request."""
        if by.decided is None:
            decision = self._found(by, question)
            self._told(by, decision)
            return decision
        key = (by.identity, question)
        known = by.decided.get(key)
        if known is not None:
            if self._auditor is not None:
                self._auditor.seen(_asked(by, known))
            return known
        decision = by.decided[key] = self._found(by, question)
        self._told(by, decision)
        return decision

    def _told(self, by: Access, decision: Decision) -> None:
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
    """The type of decisions in an audit, which is imported where there is one."""
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
    """A decision that no rule makes."""
    from omnigraph.policy import Decision

    asked = question.action
    return Decision(
        allowed, by.actor, asked, question.branch, question.target_branch, None, message
    )
