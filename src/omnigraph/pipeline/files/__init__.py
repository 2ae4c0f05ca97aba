"""Pipeline files: sources, transforms, mappings and checks as YAML, run on a branch and merged.

`document` reads a file, `inputs` lists the files of its sources and what earlier runs loaded,
`frames` builds Spark frames, `checking` validates them, `running` executes a run, `pipeline` is the
public class. `loading` loads the rows, as those of any load.
"""

from __future__ import annotations

from omnigraph.model.receipts import EmbedResult
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
