"""What a model may do with a graph."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from omnigraph.errors import Denied, InputError
from omnigraph.model.ids import check_branch_name

_BELOW = "/*"


@dataclass(frozen=True, slots=True)
class Access:
    """Which branches may be written to, and whether queries may be made up.

    By default everything is read-only, and only stored queries run.
    """

    write_branches: tuple[str, ...] = ()
    """Names, or `prefix/*` for every branch below a prefix."""
    adhoc: bool = False
    rows_max: int = 200
    """Rows of an answer; what is more is cut off and said to be."""
    actor: str | None = None
    """The author of writes to storage."""

    @classmethod
    def of(
        cls,
        write_branches: Iterable[str] = (),
        *,
        adhoc: bool = False,
        rows_max: int = 200,
        actor: str | None = None,
    ) -> Access:
        """What the words of a command line allow; raises `InputError` for a malformed branch."""
        allowed = tuple(write_branches)
        for pattern in allowed:
            check_branch_name(pattern.removesuffix(_BELOW))
        if rows_max < 1:
            raise InputError(f"at most {rows_max} rows are none", hint="allow one or more")
        return cls(allowed, adhoc, rows_max, actor)

    @property
    def writes(self) -> bool:
        """Whether anything may be written."""
        return bool(self.write_branches)

    def require_writable(self, branch: str) -> None:
        """Raise `Denied` for a branch that was not named."""
        if not any(_fits(pattern, branch) for pattern in self.write_branches):
            raise Denied(
                f"branch '{branch}' may not be written to here",
                hint=f"write to {self.shown()}; work of its own belongs on a branch of its own",
            )

    def shown(self) -> str:
        """The branches in words."""
        return " or ".join(f"'{pattern}'" for pattern in self.write_branches) or "no branch"


def _fits(pattern: str, branch: str) -> bool:
    if pattern.endswith(_BELOW):
        return branch.startswith(pattern.removesuffix("*")) and branch != pattern
    return branch == pattern
