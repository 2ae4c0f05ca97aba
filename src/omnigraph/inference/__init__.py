"""Schemas from data: the types, keys and edges that files and frames hold.

`infer_schema` looks at every value and proposes a schema with the arguments of a load that fits it.
It knows the formats and conversions of `loading`, and no graph.
"""

from __future__ import annotations

from omnigraph.inference.proposal import InferredEnd, InferredProperty, InferredType
from omnigraph.inference.schema import InferredSchema, infer_schema

__all__ = ["InferredEnd", "InferredProperty", "InferredSchema", "InferredType", "infer_schema"]
