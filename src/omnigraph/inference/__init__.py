"""Infers schemas from data: the types, keys and edges in files and frames.

`infer_schema` examines every value and proposes a schema with the arguments of a load that fits it.
It uses the formats and conversions of `loading`, and does not access graphs.
"""

from __future__ import annotations

from omnigraph.inference.proposal import InferredEnd, InferredProperty, InferredType
from omnigraph.inference.schema import InferredSchema, infer_schema

__all__ = ["InferredEnd", "InferredProperty", "InferredSchema", "InferredType", "infer_schema"]
