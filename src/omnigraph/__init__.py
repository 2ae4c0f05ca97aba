"""Omnigraph: a typed property graph kept as Lance tables, with git-style branches.

>>> import omnigraph as og
>>> g = og.init("graph.omni", schema="node Person { name: String @key }")  # doctest: +SKIP
>>> g.mutate('query add { insert Person { name: "Ada" } }')  # doctest: +SKIP
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from omnigraph import errors

if TYPE_CHECKING:
    from omnigraph.client import AsyncRemoteGraph, RemoteGraph, connect, connect_async
    from omnigraph.graph import Graph, init
    from omnigraph.graph import open_graph as open
    from omnigraph.inference import InferredSchema, infer_schema
    from omnigraph.model.governor import Governor
    from omnigraph.model.load_options import (
        CsvOptions,
        ErrorOptions,
        LoadObserver,
        LoadOrigin,
        SparkOptions,
    )
    from omnigraph.pipeline.files import Pipeline, read_pipeline

__version__ = "0.1.0"

__all__ = [
    "AsyncRemoteGraph",
    "CsvOptions",
    "ErrorOptions",
    "Governor",
    "Graph",
    "InferredSchema",
    "LoadObserver",
    "LoadOrigin",
    "Pipeline",
    "RemoteGraph",
    "SparkOptions",
    "__version__",
    "connect",
    "connect_async",
    "errors",
    "infer_schema",
    "init",
    "open",
    "read_pipeline",
]

_IN_GRAPH = ("Graph", "init", "open")
_IN_INFERENCE = ("InferredSchema", "infer_schema")
_IN_PIPELINES = ("Pipeline", "read_pipeline")
_IN_OPTIONS = ("CsvOptions", "ErrorOptions", "LoadObserver", "LoadOrigin", "SparkOptions")
_IN_CLIENT = ("AsyncRemoteGraph", "RemoteGraph", "connect", "connect_async")


def __dir__() -> list[str]:
    """The public names, for completion: most are imported when first used."""
    return list(__all__)


def __getattr__(name: str) -> object:
    """Import names that need Arrow and Lance on first use, to keep start-up fast."""
    if name in _IN_GRAPH:
        from omnigraph import graph

        return getattr(graph, "open_graph" if name == "open" else name)
    if name in _IN_OPTIONS:
        from omnigraph.model import load_options

        return getattr(load_options, name)
    if name in _IN_INFERENCE:
        from omnigraph import inference

        return getattr(inference, name)
    if name in _IN_PIPELINES:
        from omnigraph.pipeline import files

        return getattr(files, name)
    if name == "Governor":
        from omnigraph.model.governor import Governor

        return Governor
    if name in _IN_CLIENT:
        from omnigraph import client

        return getattr(client, name)
    raise AttributeError(f"module 'omnigraph' has no attribute {name!r}")
