"""The vectors of a run, computed on its branch before the checks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from omnigraph.embedding.config import EmbeddingConfig
from omnigraph.graph import Graph, LoadOrigin, SparkOptions
from omnigraph.graph.embedding import AS_OF, EMBEDS, last_embedding
from omnigraph.model.embeddings import EmbedResult
from omnigraph.model.receipts import CommitInfo
from omnigraph.pipeline.files.document import EmbedKeys
from omnigraph.pipeline.files.inputs import METADATA


def embed_on_branch(
    graph: Graph,
    branch: str,
    keys: EmbedKeys,
    *,
    pipeline: str,
    load: CommitInfo,
    spark: SparkOptions,
    embedding: EmbeddingConfig | None,
) -> EmbedResult:
    """Compute one vector where texts are new or changed since it was computed the last time.

    The texts of a graph whose vectors no commit has computed count as changed if this run, whose
    commit on the branch is ``load``, changed them.
    """
    name = f"{keys.type}.{keys.property}"
    is_first = not last_embedding(graph.list_commits(branch), name)
    receipt = graph.embed(
        keys.type,
        keys.property,
        branch=branch,
        since=load.parent_commit_id if is_first else None,
        spark=spark,
        embedding=embedding,
        origin=LoadOrigin({METADATA: {"name": pipeline, "embeds": name}}),
    )
    (result,) = receipt.properties
    return result


def merged_vectors(embedded: Sequence[EmbedResult], load: CommitInfo) -> Mapping[str, Any]:
    """What the commit that merges the branch says of its vectors, for the next run to begin with.

    They are those of their texts as the branch saw them: since the commit that it began with,
    others may have changed texts of the target.
    """
    if not embedded:
        return {}
    names = [f"{each.type}.{each.property}" for each in embedded]
    return {EMBEDS: names, AS_OF: load.parent_commit_id}
