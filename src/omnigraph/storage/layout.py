"""Names of the datasets and objects under a graph root."""

from __future__ import annotations

MANIFEST = "__manifest"
"""Dataset: table registry, pins, commit lineage, branch heads; on main also the branches."""

RECOVERY = "__recovery"
"""Prefix: one JSON sidecar per operation in flight."""

REFUSED_SIDECARS = "__recovery_refused"
"""Prefix: sidecars that recovery refused to act on, with their bytes; removed by hand."""

RECOVERY_AUDIT = "_graph_commit_recoveries.lance"
"""Dataset: one row per completed recovery."""

REVIEWS = "__reviews"
"""Dataset: the events of change requests, one row and one append each."""

LEASES = "__lease"
"""Prefix: one JSON record per writer scope."""

INIT_CLAIM = "__init_claim.json"
"""Object: held while `init` runs."""

RESTORING = "__restoring.json"
"""Object: held while a clone or a restored backup is written to this root."""

SCHEMA_SOURCE = "_schema.pg"
SCHEMA_IR = "_schema.ir.json"
SCHEMA_STATE = "__schema_state.json"
SCHEMA_OBJECTS = (SCHEMA_SOURCE, SCHEMA_IR, SCHEMA_STATE)
"""Objects: the accepted schema contract."""

STAGING_SUFFIX = ".staging"

PAST_SCHEMAS = "__schemas"
"""Prefix: the compiled form of every schema that was replaced, by its hash."""

DIGESTS = "__digests"
"""Prefix: digests of files without a row in the manifest, mainly the manifest's own files."""

LOAD_SCRATCH = "__load"
"""Prefix: uncommitted rows of bulk loads, a folder for each operation."""

ADJACENCY = "__adjacency"
"""Prefix: sorted edges saved by `optimize`, by location of their table; may be deleted."""

MAIN = "main"

FILE_FORMAT = "2.2"
"""Set explicitly, so that a newer Lance does not change the format; blobs need 2.2."""


def load_scratch_name(operation_id: str) -> str:
    """The folder of one bulk load."""
    return f"{LOAD_SCRATCH}/{operation_id.lower()}"


def past_schema_name(schema_hash: str) -> str:
    """The object of a replaced schema, in compiled form."""
    return f"{PAST_SCHEMAS}/{schema_hash.removeprefix('sha256:')}.json"


def past_source_name(schema_name: str) -> str:
    """The object with the source of a replaced schema, given the name of its compiled form."""
    return f"{schema_name.removesuffix('.json')}.pg"
