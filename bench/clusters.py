"""Clusters: plan and status of many graphs as commands, beside those of a cluster of one."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.figure import Figure, Target, Versus
from bench.measure import in_turns
from bench.scale import Scale
from omnigraph.cluster import Cluster
from omnigraph.errors import InternalError

SEED = 7
"""Nothing here is random."""
SMALL, FULL = 20, 100
"""Graphs."""
ROUNDS = 3

PLAN_RATIO = Target(10, "at most")
STATUS_SECONDS = Target(5, "at most")

SCHEMA = "node Person { name: String @key  age: I32? }\n"
QUERIES = "query everybody() { match { $p: Person } return { $p.name } }\n"


def run(scale: Scale) -> Iterator[Figure]:
    """Apply both clusters, then ask for the plan of each in turns, and for the status."""
    graphs = SMALL if scale == Scale.SMALL else FULL
    with TemporaryDirectory() as directory:
        one, many = Path(directory) / "one", Path(directory) / "many"
        apply(one, 1)
        apply(many, graphs)
        ours, single = in_turns(
            ROUNDS, lambda _: command("plan", many), lambda _: command("plan", one), of=min
        )
        yield Figure(
            f"plan of {graphs} graphs, nothing to do",
            ours,
            "s",
            PLAN_RATIO,
            "as a command, from the start of its process",
            versus=Versus("one graph", single),
        )
        (status,) = in_turns(ROUNDS, lambda _: command("status", many), of=min)
        yield Figure(f"status of {graphs} graphs", status, "s", STATUS_SECONDS)


def apply(directory: Path, graphs: int) -> None:
    """A cluster of so many graphs, everything applied."""
    directory.mkdir()
    (directory / "schema.pg").write_text(SCHEMA, encoding="utf-8")
    (directory / "people.gq").write_text(QUERIES, encoding="utf-8")
    declared = "".join(
        f"  g{n}: {{ schema: schema.pg, queries: people.gq }}\n" for n in range(graphs)
    )
    text = f"version: 1\ngraphs:\n{declared}"
    (directory / "cluster.yaml").write_text(text, encoding="utf-8")
    cluster = Cluster(directory)
    if not (cluster.import_().ok and cluster.apply(actor="act-bench").converged):
        raise InternalError(f"the cluster of {graphs} graphs was not applied")


def command(verb: str, directory: Path) -> None:
    """Run a command of a cluster; raises `CalledProcessError` if it fails."""
    arguments = ["-m", "omnigraph.cli", "cluster", verb, "--config", str(directory), "--json"]
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
