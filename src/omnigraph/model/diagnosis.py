"""What an examination of a graph looked at, and what it found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from omnigraph.model.findings import Finding


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was tried."""

    name: str
    is_fine: bool
    """Whether it worked; what could be better does not count."""

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {"name": self.name, "ok": self.is_fine}


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The result of an examination."""

    uri: str
    checks: tuple[Check, ...]
    findings: tuple[Finding, ...]

    @property
    def is_healthy(self) -> bool:
        """Whether nothing is wrong; there may be advice all the same."""
        return all(finding.severity == "advice" for finding in self.findings)

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "uri": self.uri,
            "healthy": self.is_healthy,
            "checks": [check.to_dict() for check in self.checks],
            "findings": [finding.to_dict() for finding in self.findings],
        }
