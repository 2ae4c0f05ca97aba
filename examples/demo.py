"""A tour of Omnigraph on a graph of a realistic size. Run it with `make demo`.

It makes up a library of papers, loads it with Spark as one commit, asks it four questions, changes
it on a branch, and interrupts a write. Then Spark answers one of the questions, and a stream of new
authors survives the death of its process. A pipeline is run twice, and has nothing to do the second
time. At last a review of the branch is opened. The graph stays, to be looked at; the next tour
replaces it. Everything shown is computed while it runs.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import shutil
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import omnigraph as og
from examples.papers.library import Library, centre, doi, handle, make_library
from omnigraph import Graph, __version__
from omnigraph.effects.failpoints import armed
from omnigraph.errors import QueryTypeError, RecoveryRequired

EXAMPLES = Path(__file__).parent
SCHEMA = EXAMPLES / "papers" / "schema.pg"
QUERIES = EXAMPLES / "papers" / "queries.gq"
PIPELINE = EXAMPLES / "crm" / "crm.yaml"

GRAPH = Path("build") / "demo" / "papers.omni"
"""Where the graph stays, from the folder that the tour was started in."""

PAPERS = 150_000
STREAM_FILES, STREAM_ROWS = 4, 250
WIDTH = 96

MISTAKE = """\
query cited_by($doi: String) {
    match { $paper: Paper { doi: $doi }  $other citse $paper }
    return { $other.title }
}
"""

MOST_CITED = """\
query most_cited {
    match { $author: Author  $author wrote $paper  $other cites $paper }
    return { $author.name as author, count($other) as citations }
    order { citations desc, author }
    limit 5
}
"""

STUDIO_STEPS = f"""\
omnigraph studio --store {GRAPH.as_posix()}
omnigraph review list --store {GRAPH.as_posix()}
""".splitlines()
"""Of the graph that the tour leaves."""

NEXT_STEPS = """\
omnigraph init --schema examples/social/schema.pg social.omni
omnigraph load --store social.omni --data examples/social/data.jsonl --mode append
omnigraph query --store social.omni -e 'query all { match { $p: Person } return { $p.name } }'
omnigraph branch create agent/1 --store social.omni
omnigraph schema plan --from examples/evolution/v1.pg --schema examples/evolution/v2_first_step.pg
""".splitlines()


def main(arguments: Sequence[str] | None = None) -> int:
    """Walk through the tour; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--papers", type=int, default=PAPERS, help="how many papers to make up")
    parser.add_argument("--stream", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.stream is not None:
        stream_authors(given.stream)
        return 0
    papers: int = given.papers
    shutil.rmtree(GRAPH, ignore_errors=True)  # of the tour before
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # not every terminal has every character
    print(f"Omnigraph {__version__}: a graph database that lives in a folder or a bucket.")
    with TemporaryDirectory() as directory:
        began = time.perf_counter()
        library = make_library(Path(directory), papers)
        show_heading("1. A library of papers, as Parquet files", SCHEMA)
        made = f"{library.node_count:,} authors and papers, {library.edge_count:,} edges"
        show([f"{made}, made up in {time.perf_counter() - began:.1f} s"])

        show_heading("2. Loaded with Spark: every row checked, one commit")
        graph = og.init(GRAPH, schema=SCHEMA)
        show(load_lines(graph, library))

        show_heading("3. Four questions: graph, text, vectors, and all of them at once", QUERIES)
        for name, parameters in questions(papers):
            show(question_lines(graph, name, parameters))

        show_heading("4. A mistake is pointed at, and the right word suggested")
        show(mistake_lines(graph))

        show_heading("5. An agent works on its own branch")
        show(branch_lines(graph, papers))

        show_heading("6. A write is interrupted, and nothing is half done")
        show(interruption_lines(graph, papers))

        show_heading("7. The same question on Spark, for graphs beyond one machine: the same rows")
        show(spark_lines(graph))

        show_heading(
            "8. A stream of new authors, and its process is killed: every row is there once"
        )
        show(stream_lines(graph, Path(directory)))

        show_heading("9. A pipeline file: three sources, SQL and checks, merged once", PIPELINE)
        show(pipeline_lines(Path(directory)))

        show_heading("10. The agent asks for a review: what was approved is what is merged")
        show(review_lines(graph))

    show_heading("Try it yourself")
    for command in [*STUDIO_STEPS, *NEXT_STEPS]:
        print(f"  {command}")
    print("\nThe program is .venv/bin/omnigraph; docs/guide has more.")
    return 0


# --- the stops of the tour ------------------------------------------------------------------------


def load_lines(graph: Graph, library: Library) -> Iterator[str]:
    """A bulk load: what it did, and where its time went.

    Left to itself, this process would load so much before Spark has started. This is a tour, so
    Spark shows how it loads what does not fit into one machine.
    """
    began = time.perf_counter()
    receipt = graph.load(
        nodes=library.nodes, edges=library.edges, mode="append", engine="spark", actor="demo"
    ).to_dict()
    seconds = time.perf_counter() - began
    for entry in [*receipt["nodes"], *receipt["edges"]]:
        yield f"{entry['name']:<8} {entry['inserted']:>9,} inserted"
    stages = receipt.get("stages", [])
    spent = ", ".join(f"{stage['name']} {stage['seconds']:.1f} s" for stage in stages)
    yield f"in {seconds:.1f} s, the start of Spark included ({spent})"
    yield f"commit   {receipt['commit']['graph_commit_id']}"


def pipeline_lines(directory: Path) -> Iterator[str]:
    """A pipeline file that is run twice: the second time there is nothing to do."""
    graph = og.init(directory / "crm.omni", schema=PIPELINE.with_name("schema.pg"))
    pipeline = og.read_pipeline(PIPELINE, graph=graph)
    for number in ("first", "second"):
        began = time.perf_counter()
        receipt = pipeline.run(actor="demo")
        rows = sum(each.inserted for each in (*receipt.nodes, *receipt.edges))
        seconds = time.perf_counter() - began
        did = (
            f"{rows} rows from {len(receipt.sources)} sources, {len(receipt.checks)} checks passed"
        )
        yield f"{number:<8} {receipt.outcome.replace('_', ' ')} in {seconds:.1f} s" + (
            f": {did}" if receipt.outcome == "merged" else ""
        )
    commits = ", ".join(str(commit.kind) for commit in graph.list_commits())
    yield f"main     has the commits {commits}, and no branch is left"


def review_lines(graph: Graph) -> Iterator[str]:
    """A change request of the agent's branch, and the first word about it."""
    began = time.perf_counter()
    review = graph.reviews.open("agent/1", title="A paper about branches", actor="agent")
    yield f"opened   {review.id} in {1_000 * (time.perf_counter() - began):.0f} ms"
    for each in graph.reviews.diff(review.id).types:
        yield f"diff     {each.inserted} {each.type_name} inserted since the merge base"
    said = graph.reviews.comment(review.id, "Who reads the abstract?", actor="reader")
    yield f"comment  {said.comments[0].actor_id}: {said.comments[0].text}"
    yield f"state    {said.state}, {said.mergeable}: Studio shows it, and merges it"


def questions(papers: int) -> list[tuple[str, dict[str, Any]]]:
    """Queries of the file, with parameters that have an answer."""
    return [
        ("foundations", {"doi": doi(papers - papers // 5)}),
        ("about", {"words": "recovery of a snapshot"}),
        ("similar", {"subject": centre("climate"), "since": "2015-01-01"}),
        (
            "reading_list",
            {"handle": handle(papers // 6), "words": "graph path", "subject": centre("graphs")},
        ),
    ]


def question_lines(graph: Graph, name: str, parameters: dict[str, Any]) -> Iterator[str]:
    """The answer to a query, and how long it took at first and again."""
    took = []
    for _ in range(2):
        began = time.perf_counter()
        result = graph.query(QUERIES, parameters, name=name)
        took.append(1_000 * (time.perf_counter() - began))
    yield f"{name}: {took[0]:.0f} ms at first, {took[1]:.1f} ms again"
    yield from (f"    {line}" for line in str(result).split("\n")[1:])
    yield ""


def mistake_lines(graph: Graph) -> Iterator[str]:
    """A query with a typing error, and what the compiler says about it."""
    try:
        graph.query(MISTAKE, {"doi": doi(1)})
    except QueryTypeError as error:
        yield from error.render().split("\n")


def branch_lines(graph: Graph, papers: int) -> Iterator[str]:
    """A change that only one branch sees."""
    author, new = handle(papers // 6), doi(9_999_999)
    began = time.perf_counter()
    graph.create_branch("agent/1")
    yield f"branch   agent/1, made in {1_000 * (time.perf_counter() - began):.0f} ms"
    paper = {
        "doi": new,
        "title": "Graphs on branches",
        "abstract": "a graph with a branch and a commit",
        "day": "2026-01-01",
        "subject": centre("graphs"),
    }
    for name, parameters in (("publish", paper), ("claim", {"handle": author, "doi": new})):
        began = time.perf_counter()
        graph.mutate(QUERIES, parameters, name=name, branch="agent/1", actor="agent")
        yield f"{name:<8} on agent/1 in {1_000 * (time.perf_counter() - began):.0f} ms"
    for branch in graph.list_branches():
        rows = graph.query(QUERIES, {"handle": author}, name="papers_of", branch=branch)
        head = graph.snapshot(branch).graph_commit_id
        yield f"head     {branch:<8} {head}: {rows.to_pylist()[0]['papers']} papers of {author}"


def interruption_lines(graph: Graph, papers: int) -> Iterator[str]:
    """A write that stops in the middle, and the next one that settles it."""
    claim = {"handle": handle(1), "doi": doi(papers - 1)}
    before = papers_of(graph, claim["handle"])
    with armed("mutation.post_table_commit=error*1"), suppress(RecoveryRequired):
        graph.mutate(QUERIES, claim, name="claim")
    yield "crash    a write to main stops after its table was committed, before it is visible"
    for settled in graph.recover():
        yield f"recover  its operation was {settled.outcome.replace('_', ' ')}"
    after = papers_of(graph, claim["handle"])
    yield f"check    {before} papers of {claim['handle']} before, {after} now"


def spark_lines(graph: Graph) -> Iterator[str]:
    """One question, asked of both engines."""
    found = {}
    for engine in ("local", "spark"):
        began = time.perf_counter()
        found[engine] = graph.query(MOST_CITED, engine=engine).to_pylist()
        yield f"{engine:<8} {len(found[engine])} rows in {time.perf_counter() - began:.2f} s"
    same = "equal" if found["local"] == found["spark"] else "DIFFERENT"
    yield f"rows     {same}"


def stream_lines(graph: Graph, directory: Path) -> Iterator[str]:
    """A stream whose process dies between its commit and Spark's checkpoint, and goes on."""
    inbox = directory / "inbox"
    inbox.mkdir()
    for number in range(STREAM_FILES):
        handles = (f"new-{number}-{each}" for each in range(STREAM_ROWS))
        rows = [json.dumps({"handle": each, "name": each, "country": "ke"}) for each in handles]
        (inbox / f"{number}.json").write_text("\n".join(rows))
    killed = subprocess.run(
        [sys.executable, __file__, "--stream", str(directory)],
        env={**os.environ, "OMNIGRAPH_FAILPOINTS": "stream.post_commit_pre_checkpoint=kill@2"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=False,
    )
    committed = new_authors(graph)
    yield f"killed   by signal {-killed.returncode}, with {committed} of the rows committed"
    stream_authors(directory)
    total = STREAM_FILES * STREAM_ROWS
    yield f"again    {new_authors(graph)} of {total} rows, each once"


def stream_authors(directory: Path) -> None:
    """Stream the authors of an inbox into the library, a file at a time."""
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.getOrCreate()
    arriving = (
        spark.readStream.schema("handle string, name string, country string")
        .option("maxFilesPerTrigger", 1)
        .json(str(directory / "inbox"))
    )
    graph = og.open(GRAPH)
    checkpoint = directory / "checkpoint"
    graph.stream_into(
        arriving, "Author", mode="append", checkpoint=checkpoint, available_now=True
    ).await_end()


def new_authors(graph: Graph) -> int:
    """How many rows of the stream are in the graph."""
    found = graph.table("Author", columns=["handle"]).to_arrow()["handle"].to_pylist()
    return sum(each.startswith("new-") for each in found)


def papers_of(graph: Graph, author: str) -> int:
    """How many papers an author has on main."""
    rows = graph.query(QUERIES, {"handle": author}, name="papers_of").to_pylist()
    return int(rows[0]["papers"])


# --- printing -------------------------------------------------------------------------------------


def show_heading(title: str, file: Path | None = None) -> None:
    """A title, with the file it is about."""
    origin = f"   ({file.relative_to(EXAMPLES.parent).as_posix()})" if file else ""
    print(f"\n{title}{origin}\n{'─' * len(title)}")


def show(lines: Iterable[str]) -> None:
    """Lines, indented; a long one continues on the next."""
    for line in lines:
        deeper = " " * (len(line) - len(line.lstrip()) + 6)
        wrapped = textwrap.wrap(
            line,
            WIDTH,
            subsequent_indent=deeper,
            break_long_words=False,
            break_on_hyphens=False,
            drop_whitespace=False,
        )
        for part in wrapped or [""]:
            print(f"  {part}".rstrip())


if __name__ == "__main__":
    sys.exit(main())
