"""The computations of a graph: `graph.compute.pagerank()` and the others.

Each reads one snapshot, computes a value for every node, and can write the values into a property
as one commit on a branch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack, get_args

import pyarrow as pa

from omnigraph.computing.algorithms import (
    Algorithm,
    ConnectedComponents,
    Degrees,
    KCore,
    LabelPropagation,
    LandmarkDistances,
    PageRank,
    Triangles,
)
from omnigraph.computing.blocks import distance_rows, group_names
from omnigraph.computing.selection import ComputeDirection, Selection
from omnigraph.effects.clock import monotonic_seconds
from omnigraph.errors import InputError
from omnigraph.graph.facade import audited
from omnigraph.graph.opened import engine_name
from omnigraph.model.arrow import ID, arrow_type
from omnigraph.model.computations import Computation, ComputationSummary, ComputeOptions
from omnigraph.model.load_options import SparkOptions, checked_options
from omnigraph.model.types import Scalar
from omnigraph.schema.catalog import Catalog, NodeType
from omnigraph.syntax.suggest import did_you_mean

if TYPE_CHECKING:
    from omnigraph.computing.in_process import Computed, OnRound, Topology
    from omnigraph.computing.whole_graph import WholeGraphAlgorithm
    from omnigraph.computing.whole_graph_blocks import Measure
    from omnigraph.graph.facade import Graph
    from omnigraph.pipeline.computing.job import SparkAlgorithm
    from omnigraph.storage.reader import SnapshotReader

Landmarks = str | Sequence[str] | Mapping[str, str | Sequence[str]]
"""Ids of nodes, or ids by node type if there are several."""

_LABELS = {
    "connected_components": "component",
    "label_propagation": "community",
    "louvain": "community",
    "similarity": "other",
    "strongly_connected": "component",
}
"""The algorithms whose values are names of nodes, and the column with the names."""


@audited
class Algorithms:
    """The algorithms, on a graph: each returns a `Computation`.

    All take the options of `ComputeOptions`: ``nodes`` and ``edges`` choose types, ``branch`` or
    ``snapshot`` what is read, ``engine="spark"`` runs on Spark what exceeds the memory of this
    process, and ``into="Person.rank"`` with ``to_branch`` writes the values as one commit.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph

    def pagerank(
        self,
        *,
        damping: float = 0.85,
        iterations: int = 20,
        tolerance: float = 1e-6,
        direction: ComputeDirection = "out",
        weight: str | None = None,
        **options: Unpack[ComputeOptions],
    ) -> Computation:
        """`rank`: how often a random walk is at each node; all ranks add up to 1.

        Ranks flow along edges by ``weight``, a property of theirs. It ends when the changes of a
        round add up to less than ``tolerance``, or after so many ``iterations``.
        """
        if not 0 <= damping < 1:
            raise InputError(f"damping is {damping}", hint="it is at least 0 and less than 1")
        _require_rounds(iterations)
        algorithm = PageRank(damping, iterations, tolerance)
        return self._run(algorithm, "rank", options, direction=direction, weight=weight)

    def degree(self, **options: Unpack[ComputeOptions]) -> Computation:
        """`in_degree`, `out_degree` and `degree`: the edges at each node."""
        return self._run(Degrees(), "degree", options)

    def connected_components(self, **options: Unpack[ComputeOptions]) -> Computation:
        """`component`: the group of nodes that edges of any direction link, named after a member.

        The name is the id of the member, as `Type:id` if there are several node types.
        """
        return self._run(ConnectedComponents(), "component", options)

    def strongly_connected(self, **options: Unpack[ComputeOptions]) -> Computation:
        """`component`: the group of nodes that reach each other along the edges, named as above.

        In this process it needs the extra `algorithms`.
        """
        from omnigraph.computing.whole_graph import StronglyConnected

        return self._run(StronglyConnected(), "component", options)

    def label_propagation(
        self,
        *,
        iterations: int = 10,
        weight: str | None = None,
        **options: Unpack[ComputeOptions],
    ) -> Computation:
        """`community`: the label that spread to each node, named after the node it came from.

        In each round every node takes the label that most of its neighbours have, in either
        direction, by ``weight``.
        """
        _require_rounds(iterations)
        return self._run(LabelPropagation(iterations), "community", options, weight=weight)

    def louvain(
        self,
        *,
        resolution: float = 1.0,
        weight: str | None = None,
        seed: int = 1,
        **options: Unpack[ComputeOptions],
    ) -> Computation:
        """`community`: a group with more edges inside than chance would put there.

        It is named after a member. A larger ``resolution`` gives smaller groups. Equal seeds give
        equal groups. Needs the extra `algorithms`, and runs in this process only: each move of a
        node depends on those before it.
        """
        from omnigraph.computing.whole_graph import Louvain

        if not resolution > 0:
            raise InputError(f"resolution is {resolution}", hint="it is greater than 0")
        return self._run(Louvain(resolution, seed), "community", options, weight=weight)

    def betweenness(
        self,
        *,
        samples: int = 256,
        direction: ComputeDirection = "out",
        seed: int = 1,
        **options: Unpack[ComputeOptions],
    ) -> Computation:
        """`betweenness`: the share of shortest paths between others that lead through a node.

        Paths from ``samples`` nodes, chosen by ``seed``, stand for all; if there are no more nodes
        the answer is exact.
        """
        from omnigraph.computing.whole_graph import Betweenness

        _require_samples(samples)
        return self._run(Betweenness(samples, seed), "betweenness", options, direction=direction)

    def closeness(
        self,
        *,
        samples: int = 256,
        direction: ComputeDirection = "out",
        seed: int = 1,
        **options: Unpack[ComputeOptions],
    ) -> Computation:
        """`closeness`: the share of nodes that reach a node, by their mean distance to it.

        Distances from ``samples`` nodes, chosen by ``seed``, stand for all; if there are no more
        nodes the answer is exact.
        """
        from omnigraph.computing.whole_graph import Closeness

        _require_samples(samples)
        return self._run(Closeness(samples, seed), "closeness", options, direction=direction)

    def similarity(
        self,
        *,
        per_node: int = 10,
        at_least: float = 0.0,
        measure: Measure = "jaccard",
        direction: ComputeDirection = "out",
        **options: Unpack[ComputeOptions],
    ) -> Computation:
        """`other` and `similarity`: the nodes that share most neighbours with each node.

        Up to ``per_node`` rows, of those with a neighbour in common that are ``at_least`` so
        similar, by `jaccard`, `cosine` or `overlap`. Several rows a node cannot be written with
        ``into``. In this process it needs the extra `algorithms`.
        """
        from omnigraph.computing.whole_graph import Similarity
        from omnigraph.computing.whole_graph_blocks import Measure

        if measure not in get_args(Measure):
            hint = f"it is {', '.join(get_args(Measure))}"
            raise InputError(f"there is no measure '{measure}'", hint=hint)
        if per_node < 1:
            raise InputError(f"per_node is {per_node}", hint="it is at least 1")
        if options.get("into") is not None:
            raise InputError(
                "similarity gives several values for a node, and `into` writes one",
                hint="leave `into` out, and load the rows as edges",
            )
        algorithm = Similarity(per_node, at_least, measure)
        return self._run(algorithm, "similarity", options, direction=direction)

    def shortest_paths(
        self,
        landmarks: Landmarks,
        *,
        direction: ComputeDirection = "out",
        weight: str | None = None,
        **options: Unpack[ComputeOptions],
    ) -> Computation:
        """`distance` from each landmark: the number of edges, or the sum of their ``weight``.

        ``landmarks`` are ids of nodes, or ids by type. The rows have the columns `landmark` and
        `distance`, and only nodes that can be reached.
        """
        return self._run(
            LandmarkDistances(),
            "distance",
            options,
            direction=direction,
            weight=weight,
            landmarks=landmarks,
        )

    def triangles(self, **options: Unpack[ComputeOptions]) -> Computation:
        """`triangles`: how many triangles each node is a corner of, whatever their direction."""
        return self._run(Triangles(), "triangles", options)

    def k_core(self, **options: Unpack[ComputeOptions]) -> Computation:
        """`core`: the largest k such that the node is in a part where all have k neighbours."""
        return self._run(KCore(), "core", options)

    # --- running ----------------------------------------------------------------------------------

    def _run(
        self,
        algorithm: Algorithm | ConnectedComponents | WholeGraphAlgorithm,
        value: str,
        options: ComputeOptions,
        *,
        direction: ComputeDirection = "out",
        weight: str | None = None,
        landmarks: Landmarks | None = None,
    ) -> Computation:
        from omnigraph.computing.whole_graph import Louvain

        graph, opened = self._graph, self._graph._opened
        unknown = set(options) - set(ComputeOptions.__annotations__)
        if unknown:
            wrong = min(unknown)
            meant = did_you_mean(wrong, ComputeOptions.__annotations__)
            more = "" if meant is None else f"; {meant}"
            raise TypeError(f"{algorithm.name}() has no option {wrong!r}{more}")
        target = graph._read_target("compute", options.get("branch"), options.get("snapshot"))
        reader, catalog = graph._seen(opened.pinned(target))
        selection = Selection.of(
            catalog,
            algorithm,
            nodes=options.get("nodes"),
            edges=options.get("edges"),
            direction=direction,
            weight=weight,
        )
        spark = checked_options(options.get("spark"), SparkOptions, "spark")
        engine = engine_name(options.get("engine"), spark)
        writing = self._writing(catalog, selection, options)
        found = None if landmarks is None else _landmarks(landmarks, selection)
        started = monotonic_seconds()
        if engine == "spark":
            if isinstance(algorithm, Louvain):
                raise InputError(
                    "louvain moves one node after the other, in one process and not on Spark",
                    hint="leave `engine` out, or take label_propagation",
                )
            if reader.hides_rows:
                raise InputError(
                    "rows that the rules hide are left out in this process only, not on Spark",
                    hint="leave `engine` out",
                )
            run = self._on_spark(
                algorithm, selection, reader, found, spark=spark, on_round=options.get("on_round")
            )
        else:
            run = self._in_process(algorithm, selection, reader, found, options)
        nodes, edges, rounds, converged, rows, frame = run
        summary = ComputationSummary(
            algorithm.name,
            engine,
            target,
            reader.snapshot.commit_id,
            nodes,
            edges,
            rounds,
            converged,
            monotonic_seconds() - started,
        )
        made = Computation(summary, value, rows, frame)
        if writing is not None:
            made.receipt = self._written(made, *writing, options=options)
        return made

    def _in_process(
        self,
        algorithm: Algorithm | ConnectedComponents | WholeGraphAlgorithm,
        selection: Selection,
        reader: SnapshotReader,
        landmarks: Sequence[tuple[str, str]] | None,
        options: ComputeOptions,
    ) -> _Run:
        from omnigraph.computing.in_process import Topology, compute
        from omnigraph.computing.whole_graph import WholeGraphAlgorithm
        from omnigraph.engines.local.engine import LocalEngine

        engine = self._graph._opened.engine("local")
        assert isinstance(engine, LocalEngine)
        topology = Topology(engine, reader, selection)
        if landmarks is not None:
            places = [topology.place_of(*landmark) for landmark in landmarks]
            _require_found(landmarks, places)
            algorithm = LandmarkDistances(
                tuple(int(place) for place in places if place is not None)
            )
        if isinstance(algorithm, WholeGraphAlgorithm):
            done = algorithm.run(topology)
        else:
            done = compute(algorithm, topology, options.get("on_round"))
        rows = _local_rows(topology, done, algorithm.name)
        if landmarks is not None:
            rows = distance_rows(rows, landmarks, are_counts=selection.weight is None)
        return topology.nodes, done.edges, done.rounds, done.converged, lambda: rows, None

    def _on_spark(
        self,
        algorithm: SparkAlgorithm,
        selection: Selection,
        reader: SnapshotReader,
        landmarks: Sequence[tuple[str, str]] | None,
        *,
        spark: SparkOptions,
        on_round: OnRound | None,
    ) -> _Run:
        from omnigraph.pipeline.computing.job import run_on_spark

        done = run_on_spark(
            algorithm,
            selection,
            self._graph._kernel.root,
            reader,
            spark,
            operation_id=self._graph._kernel.ids.ulid(),
            label=_LABELS.get(algorithm.name),
            landmarks=landmarks,
            on_round=on_round,
        )
        if landmarks is not None:
            _require_found(landmarks, done.landmarks)
        return done.nodes, done.edges, done.rounds, done.converged, done.rows, done.frame

    # --- writing ----------------------------------------------------------------------------------

    def _writing(
        self, catalog: Catalog, selection: Selection, options: ComputeOptions
    ) -> tuple[NodeType, str, str, str | None] | None:
        """The node type, property and branch to write to, and where a new branch starts from.

        Raises before anything is computed.
        """
        into, branch = options.get("into"), options.get("to_branch")
        if into is None:
            if branch is not None:
                raise InputError("`to_branch` is given without `into`", hint="name the property")
            return None
        type_name, separator, name = into.partition(".")
        node = catalog.nodes.get(type_name)
        if not separator or node is None or node.name not in selection.nodes:
            raise InputError(
                f"'{into}' is no property of a node type that the computation covers",
                hint=did_you_mean(type_name, selection.nodes)
                or "write it as Type.property, for example Person.rank",
            )
        if name not in node.properties:
            raise InputError(
                f"{type_name} has no property '{name}'",
                hint=did_you_mean(name, node.properties) or "add it with `schema apply`",
            )
        if branch is None:
            raise InputError(
                f"the values of {into} need a branch to be written to",
                hint="name it in `to_branch`; a branch that does not exist is created",
            )
        # Decided now: a branch that is deleted while values are computed is not created again.
        exists = branch in self._graph.list_branches()
        source = self._graph._branch_of(options.get("branch"))
        return node, name, branch, None if exists else source

    def _written(
        self,
        made: Computation,
        node: NodeType,
        name: str,
        branch: str,
        from_: str | None,
        *,
        options: ComputeOptions,
    ) -> Any:
        """Write the values of one type as a merge load.

        Skips nodes that were deleted since they were read, or that the branch lacks, because a
        merge would insert them.
        """
        graph = self._graph
        target = from_ or branch
        has_moved = graph.snapshot(target).graph_commit_id != made.summary.graph_commit_id
        moved = target if has_moved else None
        if made.summary.engine == "spark":
            rows = self._spark_rows(made, node, name, moved)
        else:
            rows = self._arrow_rows(made, node, name, moved)
        return graph.load(
            mode="merge",
            frames={node.name: rows},
            branch=branch,
            from_=from_,
            actor=options.get("actor"),
            message=options.get("message") or f"{made.summary.algorithm} into {node.name}.{name}",
        )

    def _arrow_rows(
        self, made: Computation, node: NodeType, name: str, moved: str | None
    ) -> pa.Table:
        rows = made.to_arrow()
        mine = rows.filter(pa.compute.equal(rows["type"], node.name))
        if moved is not None:
            there = self._graph.table(node.name, columns=[ID], branch=moved).to_arrow()[ID]
            mine = mine.filter(pa.compute.is_in(mine[ID], value_set=there))
        values = mine[made.value].cast(arrow_type(node.properties[name].type))
        key = _text_key(node)
        if not node.key or key is not None:
            return pa.table({key or ID: mine[ID], name: values})
        # A load identifies rows by their key properties.
        columns = [ID, *node.key]
        keys = self._graph.table(node.name, columns=columns, snapshot=made.summary.graph_commit_id)
        joined = pa.table({ID: mine[ID], name: values}).join(keys.to_arrow(), ID, join_type="inner")
        return joined.select([*node.key, name])

    def _spark_rows(self, made: Computation, node: NodeType, name: str, moved: str | None) -> Any:
        from omnigraph.pipeline.spark.gateway import loss_named

        with loss_named("computation"):
            return self._frame_to_write(made, node, name, moved)

    def _frame_to_write(
        self, made: Computation, node: NodeType, name: str, moved: str | None
    ) -> Any:
        frame = made.to_spark()
        mine = frame.where(frame["type"] == node.name)
        if moved is not None:
            session = frame.sparkSession
            there = self._graph.frame(node.name, columns=[ID], branch=moved, spark=session)
            mine = mine.join(there, ID, "left_semi")
        key = _text_key(node)
        if not node.key or key is not None:
            found = mine.select(mine[ID].alias(key or ID), mine[made.value].alias(name))
        else:
            keys = self._graph.frame(
                node.name,
                columns=[ID, *node.key],
                branch=made.summary.target.branch,
                snapshot=made.summary.graph_commit_id,
                spark=frame.sparkSession,
            )
            joined = mine.select(ID, mine[made.value].alias(name)).join(keys, ID)
            found = joined.select(*node.key, name)
        return found


_Run = tuple[int, int, int, bool, Callable[[], pa.Table], Callable[[], Any] | None]
"""Nodes, edges, rounds, convergence, and functions for the rows as Arrow and as a Spark frame."""


def _require_rounds(iterations: int) -> None:
    if iterations < 1:
        raise InputError(f"iterations is {iterations}", hint="it is at least 1")


def _require_samples(samples: int) -> None:
    if samples < 1:
        raise InputError(f"samples is {samples}", hint="it is at least 1")


def _text_key(node: NodeType) -> str | None:
    """The key property of a type whose ids are the key's values."""
    if len(node.key) != 1 or node.properties[node.key[0]].type.scalar is not Scalar.STRING:
        return None
    return node.key[0]


def _landmarks(given: Landmarks, selection: Selection) -> list[tuple[str, str]]:
    if isinstance(given, Mapping):
        by_type = {name: [ids] if isinstance(ids, str) else [*ids] for name, ids in given.items()}
        for name in by_type:
            if name not in selection.nodes:
                raise InputError(
                    f"landmarks of '{name}' are no nodes that the computation covers",
                    hint=did_you_mean(name, selection.nodes),
                )
    elif len(selection.nodes) != 1:
        raise InputError(
            f"landmarks may be nodes of {', '.join(selection.nodes)}",
            hint='name their type: {"Person": ["ada"]}',
        )
    else:
        by_type = {selection.nodes[0]: [given] if isinstance(given, str) else [*given]}
    found = [(name, each) for name, ids in by_type.items() for each in ids]
    if not found:
        raise InputError("there are no landmarks", hint="name the nodes to begin at")
    return list(dict.fromkeys(found))


def _require_found(
    landmarks: Sequence[tuple[str, str]], places: Sequence[int | bool | None]
) -> None:
    for (type_name, node_id), place in zip(landmarks, places, strict=True):
        if place is None or place is False:
            raise InputError(
                f"there is no {type_name} '{node_id}' to begin at",
                hint="landmarks are ids of nodes",
            )


def _local_rows(topology: Topology, done: Computed, algorithm: str) -> pa.Table:
    rows = pa.table({"type": topology.types, "id": topology.ids})
    columns: dict[str, Any] = dict(done.columns)
    label = _LABELS.get(algorithm)
    if label is not None:
        names = group_names(rows, topology.selection.labels_have_types)
        columns[label] = names.take(pa.array(columns[label]))
    if done.places is not None:
        rows = rows.take(pa.array(done.places))
    return pa.table({"type": rows["type"], "id": rows["id"], **columns})
