"""Imports what workers of Spark need into the daemons that fork them.

Python reads this file when it starts, since the session of the tests puts this folder on the path
of Spark's Python processes. Spark's daemon imports nothing before it forks, so that each worker
and each of the three processes of an action of the data source would import everything: most of
their time. Sessions that commands, clusters and benchmarks start go without it.
"""

import gc
import importlib
import sys
import warnings

DAEMON = ["-m", "pyspark.daemon"]
IMPORTED = (
    "pandas",
    "pyarrow.parquet",
    "lance",
    "omnigraph.engines.spark.workers",
    "omnigraph.loading.checks",
    "omnigraph.loading.in_process",
    "omnigraph.loading.inputs",
    "omnigraph.loading.staging",
    "omnigraph.loading.upsert_tasks",
    "omnigraph.pipeline.data_source.reading",
    "omnigraph.pipeline.data_source.source",
    "omnigraph.pipeline.data_source.writing",
)

if sys.orig_argv[1:3] == DAEMON:
    warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas")
    # The daemon imports Lance and never uses it, which is safe.
    warnings.filterwarnings("ignore", message="lance is not fork-safe")
    for name in (*sys.orig_argv[3:], *IMPORTED):
        importlib.import_module(name)
    gc.freeze()
