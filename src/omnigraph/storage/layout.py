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
"""Object: held while a clone or a restored backup is put here."""

SCHEMA_SOURCE = "_schema.pg"
SCHEMA_IR = "_schema.ir.json"
SCHEMA_STATE = "__schema_state.json"
SCHEMA_OBJECTS = (SCHEMA_SOURCE, SCHEMA_IR, SCHEMA_STATE)
"""The accepted schema contract."""

STAGING_SUFFIX = ".staging"

PAST_SCHEMAS = "__schemas"
"""Prefix: the compiled form of every schema that was replaced, by its hash."""

DIGESTS = "__digests"
"""Prefix: digests of files that no row of the manifest can name, its own above all."""

LOAD_SCRATCH = "__load"
"""Prefix: rows of bulk loads that are not committed yet, a folder for each operation."""

ADJACENCY = "__adjacency"
"""Prefix: sorted edges as `optimize` saved them, by the location of their table; can be lost."""

MAIN = "main"

FILE_FORMAT = "2.2"
"""Explicit, so that a newer Lance does not change what we write; blobs need 2.2."""


def load_scratch_name(operation_id: str) -> str:
    """The folder of one bulk load."""
    return f"{LOAD_SCRATCH}/{operation_id.lower()}"


def past_schema_name(schema_hash: str) -> str:
    """The object of a schema that was replaced."""
    return f"{PAST_SCHEMAS}/{schema_hash.removeprefix('sha256:')}.json"


def past_source_name(schema_name: str) -> str:
    """The source that a kept schema, by the name of its object, was written as."""
    return f"{schema_name.removesuffix('.json')}.pg"
