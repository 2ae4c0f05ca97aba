"""What embedding stored texts took: the receipt of `Graph.embed`, a part of that of pipelines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

from omnigraph.model.json_object import OPTIONAL, Json, JsonObject
from omnigraph.model.receipts import CommitInfo

EMBEDS = "embeds"
"""The key of a commit's metadata that lists properties, as `Doc.meaning`, whose vectors are those
of their texts as of this commit."""


@dataclass(frozen=True, slots=True)
class EmbedResult(JsonObject):
    """What embedding one property took."""

    type: str
    property: str
    texts: int
    """Texts whose vectors were computed."""
    characters: int
    stale: int = 0
    """Vectors that were set to null, and made anew, because their text had changed."""
    resumed: int = 0
    """Vectors that an interrupted run had computed and put aside."""
    left: int = 0
    """Nodes whose text or vector others changed meanwhile; the next run looks at them."""
    requests: int = 0
    """Requests to the provider, repeated ones included."""
    retries: int = 0
    tokens: int | None = None
    """As the provider counts them; null if it does not say."""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class EmbedReceipt(JsonObject):
    """What `Graph.embed` did."""

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
        """As the provider counts them; None if it does not say."""
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
