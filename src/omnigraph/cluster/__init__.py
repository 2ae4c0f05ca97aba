"""Clusters as code: graphs, schemas, stored queries and policies, declared in one directory.

`cluster.yaml` and the files it names are the desired state, the ledger in the storage root is the
applied state, and a plan is the difference. Only `apply` changes graphs and contents; servers serve
the applied state. This room opens graphs through `Graph`, and does not depend on HTTP.
"""

from __future__ import annotations

from omnigraph.cluster.commands import Cluster, plan_document
from omnigraph.cluster.diagnostics import ClusterDiagnostic

__all__ = ["Cluster", "ClusterDiagnostic", "plan_document"]
