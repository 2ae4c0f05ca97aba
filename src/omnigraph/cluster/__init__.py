"""Clusters as code: graphs, schemas, stored queries and policies, declared in one directory.

`cluster.yaml` and the files it names are the desired state, the ledger in the storage root is what
was applied, and a plan is the difference. Only `apply` changes the world; servers serve what was
applied. This room opens graphs through their `Graph` object, and knows nothing of HTTP.
"""

from __future__ import annotations

from omnigraph.cluster.commands import Cluster, plan_document
from omnigraph.cluster.diagnostics import ClusterDiagnostic

__all__ = ["Cluster", "ClusterDiagnostic", "plan_document"]
