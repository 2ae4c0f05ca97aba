"""Vectors of a branch: computed in this process where a text is new or has changed.

A null vector means that there is something to do. Vectors whose text changed are set to null first,
in a commit of their own, so that every later attempt finds the rest of the work by looking for
nulls. Vectors are committed a batch at a time: what a provider has answered is not asked again.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.embedding.client import EmbeddingClient, require_model
from omnigraph.embedding.config import EmbeddingConfig, RetryLimits, config_from_environment
from omnigraph.graph import Graph, LoadOrigin
from omnigraph.model.arrow import ID
from omnigraph.pipeline.files.receipts import EmbedResult
from omnigraph.schema.catalog import Embed, NodeType, Property

BATCH_TEXTS = 512
"""Texts whose vectors are committed together."""
REQUESTS_AT_ONCE = 8


def embedding_client(config: EmbeddingConfig | None) -> EmbeddingClient:
    """The client of a configuration, or of the one in the environment."""
    found = config or config_from_environment(os.environ)
    return EmbeddingClient(found, RetryLimits.from_environment(os.environ))


@dataclass(frozen=True, slots=True)
class VectorWork:
    """The vectors of one property on one branch."""

    graph: Graph
    branch: str
    type: NodeType
    vector: Property
    metadata: dict[str, Any]
    """Kept with every commit."""

    @property
    def _embed(self) -> Embed:
        assert self.vector.embed is not None
        return self.vector.embed

    @property
    def _identity(self) -> tuple[str, ...]:
        """The columns by which a load finds a node."""
        return self.type.key or (ID,)

    def run(self, client: EmbeddingClient, since: str) -> EmbedResult:
        """Compute what is missing, and what changed after the commit ``since``.

        Raises `InputError` if the schema records another model, and `EmbeddingError`; the vectors
        that were computed before it are committed.
        """
        name = f"{self.type.name}.{self.vector.name}"
        if self._embed.model is not None:
            require_model(client.config, self._embed.model, name)
        stale = self._forget_stale(since)
        texts = characters = 0
        for batch in self._missing():
            texts += batch.num_rows
            characters += pc.sum(pc.utf8_length(batch[self._embed.source])).as_py() or 0
            self._fill(client, batch)
        return EmbedResult(self.type.name, self.vector.name, texts, characters, stale)

    def _forget_stale(self, since: str) -> int:
        """Set vectors to null that were there before their text changed; returns how many."""
        source, vector = self._embed.source, self.vector.name
        found = self.graph.diff(since, self.branch, types=[self.type.name], ops=["update"])
        stale = []
        for change in found.changes(images=True):
            assert change.before is not None and change.after is not None
            before, after = change.before.properties, change.after.properties
            has_old_vector = after.get(vector) is not None and before[vector] == after[vector]
            if before.get(source) != after.get(source) and has_old_vector:
                stale.append({name: after.get(name, change.id) for name in self._identity})
        if stale:
            columns = {name: [each[name] for each in stale] for name in self._identity}
            self._store(columns, [None] * len(stale))
        return len(stale)

    def _missing(self) -> Iterator[pa.Table]:
        """Nodes with a text and without a vector, in batches."""
        source = self._embed.source
        columns = [*self._identity, source]
        where = {self.vector.name: None}
        table = self.graph.table(
            self.type.name, columns=list(dict.fromkeys(columns)), where=where, branch=self.branch
        ).to_arrow()
        table = table.filter(pc.greater(pc.utf8_length(pc.utf8_trim_whitespace(table[source])), 0))
        for start in range(0, table.num_rows, BATCH_TEXTS):
            yield table.slice(start, BATCH_TEXTS)

    def _fill(self, client: EmbeddingClient, batch: pa.Table) -> None:
        """Compute and commit the vectors of a batch; those before a failure are committed too."""
        dimension = self.vector.type.vector_dim
        assert dimension is not None
        asked: list[Future[list[float]]]
        with ThreadPoolExecutor(REQUESTS_AT_ONCE) as pool:
            asked = [
                pool.submit(client.embed, text, dimension, "document")
                for text in batch[self._embed.source].to_pylist()
            ]
            failure = next((each.exception() for each in asked if each.exception()), None)
        done = [at for at, each in enumerate(asked) if each.exception() is None]
        rows = batch.take(done)
        columns = {name: rows[name].to_pylist() for name in self._identity}
        if done:
            self._store(columns, [asked[at].result() for at in done])
        if failure is not None:
            raise failure

    def _store(self, columns: dict[str, list[Any]], vectors: Sequence[list[float] | None]) -> None:
        """Write the vectors alone: everything else of the nodes is kept."""
        dimension = self.vector.type.vector_dim
        assert dimension is not None
        table = pa.table(
            {**columns, self.vector.name: pa.array(vectors, pa.list_(pa.float32(), dimension))}
        )
        self.graph.load(
            frames={f"node:{self.type.name}": table},
            mode="merge",
            branch=self.branch,
            engine="local",
            origin=LoadOrigin(self.metadata),
        )
