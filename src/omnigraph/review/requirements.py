"""The requirements of a branch for change requests, and which of them a request does not meet."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from omnigraph.model.records import dataclass
from omnigraph.model.reviews import BlockReason, Review


@dataclass(frozen=True, slots=True)
class Requirements:
    """The requirements of a branch for merging a request into it."""

    approvals: int = 0
    reviewers: frozenset[str] | None = None
    """The actors whose approvals count; None for all."""
    group: str | None = None
    """The name of that group in the policy."""
    checks: tuple[str, ...] = ()
    resolved_comments: bool = False
    up_to_date: bool = False

    def counts(self, actor_id: str | None) -> bool:
        """Whether a review of an actor counts."""
        return self.reviewers is None or actor_id in self.reviewers


NO_REQUIREMENTS = Requirements()
RequirementsOf = Callable[[str], Requirements]
"""The requirements by branch."""


def blocks(review: Review, required: Requirements) -> Iterator[BlockReason]:
    """The unmet requirements of a request, except being up to date."""
    if required.approvals:
        given = [each for each in review.reviews if required.counts(each.actor_id)]
        approved = [each.actor_id for each in given if each.actor_id in review.approvers]
        if len(approved) < required.approvals:
            yield BlockReason("approvals", _missing_approvals(review, required, len(approved)))
        for each in given:
            if each.verdict == "changes_requested" and not each.stale:
                yield BlockReason("changes_requested", f"{each.actor_id} asks for changes")
    results = {each.name: each for each in review.checks}
    for name in required.checks:
        found = results.get(name)
        if found is None:
            yield BlockReason("check", f"check {name} has not run")
        elif found.stale:
            yield BlockReason("check", f"check {name} ran on an older head of {review.source}")
        elif found.state != "passed":
            because = f": {found.text}" if found.text else ""
            yield BlockReason("check", f"check {name} is {found.state}{because}")
    if required.resolved_comments:
        count = sum(each.reply_to is None and not each.resolved for each in review.comments)
        if count:
            plural = "thread is" if count == 1 else "threads are"
            yield BlockReason("comments", f"{count} comment {plural} not resolved")


def _missing_approvals(review: Review, required: Requirements, count: int) -> str:
    of = "" if required.group is None else f" of {required.group}"
    told = f"{count} of {required.approvals} approvals{of}"
    own = [each for each in review.reviews if each.actor_id == review.author]
    if any(each.verdict == "approved" for each in own):
        told += "; the approval of its author does not count"
    stale = sum(
        each.stale
        and each.verdict == "approved"
        and required.counts(each.actor_id)
        and each.actor_id != review.author
        for each in review.reviews
    )
    return told + (f"; {stale} given for an older head of {review.source}" if stale else "")


def lacking_commits(review: Review, required: Requirements) -> Iterator[BlockReason]:
    """The unmet requirement to be up to date, if the target has it."""
    if required.up_to_date:
        yield BlockReason(
            "behind",
            f"{review.target} has commits that {review.source} lacks: merge {review.target} into "
            f"{review.source} first",
        )
