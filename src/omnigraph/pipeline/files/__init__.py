"""Pipeline files: sources, transforms, mappings and checks as YAML, run on a branch and merged.

`document` reads a file, `inputs` finds what its sources hold and what earlier runs loaded,
`frames` builds Spark frames, `checking` finds what does not fit, `pipeline` runs it, `embedding`
computes vectors. Rows are loaded by `loading`, as those of any load.
"""

from __future__ import annotations

from omnigraph.model.embeddings import EmbedResult
from omnigraph.pipeline.files.document import PipelineProblem
from omnigraph.pipeline.files.pipeline import Pipeline, read_pipeline
from omnigraph.pipeline.files.receipts import (
    PipelineCheckResult,
    PipelinePlan,
    PipelineReceipt,
    PipelineReport,
    PipelineSource,
    PipelineStage,
    PlannedRows,
)

__all__ = [
    "EmbedResult",
    "Pipeline",
    "PipelineCheckResult",
    "PipelinePlan",
    "PipelineProblem",
    "PipelineReceipt",
    "PipelineReport",
    "PipelineSource",
    "PipelineStage",
    "PlannedRows",
    "read_pipeline",
]
