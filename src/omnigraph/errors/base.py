"""What every error has in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

HINT = "hint: "
"""What a hint begins with, where people read it."""


class OmnigraphError(Exception):
    """Root of every error the product raises on purpose."""

    code: ClassVar[str] = "internal"
    """Stable name of the class of failure."""
    wire_code: ClassVar[str | None] = "internal"
    """The envelope's closed code set; ``None`` where the status alone speaks."""
    detail_key: ClassVar[str | None] = None
    """Envelope member that carries ``details``, if the wire format defines one."""

    def __init__(
        self,
        message: str,
        *,
        hint: str | None = None,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self._hint: str | None = None
        self.hint = hint
        self.details: dict[str, Any] = dict(details or {})

    @property
    def hint(self) -> str | None:
        """What to do next. A traceback shows it below the sentence."""
        return self._hint

    @hint.setter
    def hint(self, hint: str | None) -> None:
        if self._hint:
            self.__notes__.remove(f"{HINT}{self._hint}")
        self._hint = hint
        if hint:
            self.add_note(f"{HINT}{hint}")

    def __reduce__(self) -> tuple[Any, ...]:
        # The usual way calls the class with the message alone, which most of them do not take: an
        # error of a worker process would then be a TypeError in the process that waits for it.
        return _restored, (type(self), self.args), self.__dict__

    def envelope(self) -> dict[str, Any]:
        """The error as one JSON object: ``error``, ``code?``, its detail member, ``hint?``."""
        out: dict[str, Any] = {"error": self.message}
        if self.wire_code is not None:
            out["code"] = self.wire_code
        out.update(self.wire_detail())
        if self.hint:
            out["hint"] = self.hint
        return out

    def wire_detail(self) -> dict[str, Any]:
        """The structured members of the envelope."""
        return {self.detail_key: self.details} if self.detail_key else {}

    def render(self) -> str:
        """The text a person sees: the sentence, and the hint on a line of its own."""
        return f"{self.message}\n{HINT}{self.hint}" if self.hint else self.message


def _restored(kind: type[OmnigraphError], args: tuple[Any, ...]) -> OmnigraphError:
    """An error of another process; what it carries is set by whoever unpickles it."""
    error = kind.__new__(kind)
    error.args = args
    return error
