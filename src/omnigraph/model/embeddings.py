"""Receipts of embedding stored texts: of `Graph.embed`, and as a part of pipeline receipts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar

from omnigraph.model.json_object import OPTIONAL, Json, JsonObject
from omnigraph.model.receipts import CommitInfo
from omnigraph.model.records import dataclass

EMBEDS = "embeds"
"""The key of a commit's metadata that lists properties, such as `Doc.meaning`, whose vectors were
computed from their texts as of this commit."""


@dataclass(frozen=True, slots=True)
class EmbedResult(JsonObject):
    """The result of embedding one property."""

    type: str
    property: str
    texts: int
    """Texts whose vectors were computed."""
    characters: int
    stale: int = 0
    """Vectors that were set to null and computed again, because their text had changed."""
    resumed: int = 0
    """Vectors that an interrupted run had computed and stored."""
    left: int = 0
    """Nodes whose text or vector was changed concurrently; the next run processes them."""
    requests: int = 0
    """Requests to the provider, repeated ones included."""
    retries: int = 0
    tokens: int | None = None
    """As counted by the provider; null if it does not report them."""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class EmbedReceipt(JsonObject):
    """The result of `Graph.embed`."""

    branch: str
    engine: str
    """Where requests were sent from: `local` for this process, or `spark`."""
    provider: str
    model: str
    properties: tuple[EmbedResult, ...]
    commit: Annotated[CommitInfo | None, OPTIONAL] = None
    """The last commit; None if nothing changed."""

    computed: ClassVar[Mapping[str, Json]] = {
        name: Json() for name in ("texts", "tokens", "requests", "retries", "seconds")
    }

    @property
    def texts(self) -> int:
        """Texts whose vectors were computed."""
        return sum(each.texts for each in self.properties)

    @property
    def tokens(self) -> int | None:
        """As counted by the provider; None if it does not report them."""
        known = [each.tokens for each in self.properties if each.tokens is not None]
        return sum(known) if known else None

    @property
    def requests(self) -> int:
        """Requests to the provider, repeated ones included."""
        return sum(each.requests for each in self.properties)

    @property
    def retries(self) -> int:
        """Requests that were repeated."""
        return sum(each.retries for each in self.properties)

    @property
    def seconds(self) -> float:
        """How long it took."""
        return round(sum(each.seconds for each in self.properties), 3)
