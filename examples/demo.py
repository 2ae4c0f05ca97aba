"""A tour of what Omnigraph can do today. Run it with `make demo`.

Everything shown is computed while it runs, from the files beside this one.
"""

from __future__ import annotations

import io
import sys
import textwrap
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import omnigraph
from omnigraph import __version__
from omnigraph.effects.failpoints import armed
from omnigraph.errors import QueryTypeError, RecoveryRequired
from omnigraph.query.compile import compile_query
from omnigraph.query.descriptor import OperationDescriptor, describe_operation, describe_parameter
from omnigraph.query.explain import explain
from omnigraph.query.parser import parse_query_file, select_query
from omnigraph.schema.catalog import Catalog
from omnigraph.schema.compile import CompiledSchema, compile_schema
from omnigraph.schema.migration import plan_change

EXAMPLES = Path(__file__).parent
SCHEMA = EXAMPLES / "social" / "schema.pg"
QUERIES = EXAMPLES / "social" / "queries.gq"
MUTATIONS = EXAMPLES / "social" / "mutations.gq"
DATA = EXAMPLES / "social" / "data.jsonl"
BEFORE = EXAMPLES / "evolution" / "v1.pg"
AFTER = EXAMPLES / "evolution" / "v2.pg"

WIDTH = 96

SHOWN_QUERY = "friends_of_friends"

MISTAKE = """\
query who_liked_it($slug: String) {
    match {
        $post: Post { slug: $slug }
        $fan lieks $post
    }
    return { $fan.name }
}
"""

NEXT_STEPS = """\
omnigraph schema check examples/library/schema.pg
omnigraph lint --explain --schema examples/library/schema.pg --query examples/library/queries.gq
omnigraph schema plan --from examples/evolution/v1.pg --schema examples/evolution/v2_first_step.pg
""".splitlines()


def main() -> int:
    """Walk through the tour; returns the exit code."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # not every terminal has every character
    print(f"Omnigraph {__version__}: a graph database that lives in a folder or a bucket.")
    print("Its two languages, and the kernel that stores, branches and recovers, work today.")

    show_heading("1. A schema says what a graph may hold", SCHEMA)
    compiled = compile_schema(SCHEMA)
    show(type_lines(compiled.catalog))

    show_heading(f"2. A query describes a shape: {SHOWN_QUERY}", QUERIES)
    show_query(compiled)

    show_heading("3. A mistake is pointed at, and the right word suggested")
    show_mistake(compiled)

    show_heading("4. A schema may change: the way from one version to the next", AFTER)
    show(str(step) for step in plan_change(compile_schema(BEFORE).ir, AFTER).plan.steps)

    show_heading("5. A graph is written, branched, and survives an interrupted write", DATA)
    with TemporaryDirectory() as directory:
        show(living_graph_lines(Path(directory) / "social.omni"))

    show_heading("Try it yourself")
    for command in NEXT_STEPS:
        print(f"  {command}")
    print("\nThe program is .venv/bin/omnigraph; docs/guide has more.")
    return 0


# --- the stops of the tour ------------------------------------------------------------------------


def type_lines(catalog: Catalog) -> Iterator[str]:
    """One line for each type: its key and properties, or its ends."""
    for node in catalog.nodes.values():
        properties = ", ".join(f"{prop.name}: {prop.type}" for prop in node.properties.values())
        yield f"node {node.name} by {' and '.join(node.key)}"
        yield f"     {properties}"
    for edge in catalog.edges.values():
        properties = ", ".join(f"{prop.name}: {prop.type}" for prop in edge.properties.values())
        yield f"edge {edge.name}: {edge.source} -> {edge.target}" + (
            f"  ({properties})" if properties else ""
        )


def show_query(compiled: CompiledSchema) -> None:
    """The text of a query, its typed plan, and what callers can know about it."""
    file = parse_query_file(QUERIES)
    span = select_query(file, SHOWN_QUERY).span
    show(file.source.text[span.start : span.end].split("\n"))
    plan = compile_query(QUERIES, compiled.catalog, SHOWN_QUERY)
    print("\n  checked and planned, it becomes")
    show(explain(plan).split("\n"))
    print("\n  and every tool can know, without running it,")
    parameters = ", ".join(
        f"{given.name} ({given.kind})" for given in map(describe_parameter, plan.parameters)
    )
    show([f"takes    {parameters}", *operation_lines(describe_operation(plan, compiled.catalog))])


def operation_lines(operation: OperationDescriptor) -> Iterator[str]:
    """What a query returns, reads and writes."""
    returned = ", ".join(f"{field.column} ({field.kind})" for field in operation.result)
    yield f"returns  {returned}"
    yield f"reads    {', '.join(f'{kind} {name}' for kind, name in operation.reads)}"
    yield f"writes   {', '.join(f'{kind} {name}' for kind, name in operation.writes) or 'nothing'}"


def living_graph_lines(root: Path) -> Iterator[str]:
    """A graph on disk: loaded, changed on a branch, interrupted, and settled."""
    graph = omnigraph.init(root, schema=SCHEMA)
    loaded = graph.load(DATA, mode="append", actor="demo").to_dict()
    yield f"load     {loaded['total_entities']} entities of {SCHEMA.name} in one commit"
    graph.create_branch("agent/1")
    sign_up = {"handle": "grace", "name": "Grace"}
    receipt = graph.mutate(MUTATIONS, sign_up, name="sign_up", branch="agent/1", actor="agent")
    yield f"mutate   {receipt.affected_nodes} person signs up on branch agent/1, not on main"
    with armed("mutation.post_table_commit=error*1"), suppress(RecoveryRequired):
        graph.mutate(MUTATIONS, {"handle": "lost", "name": "Lost"}, name="sign_up")
    yield "crash    a write to main is interrupted after its first table"
    for settled in graph.recover():
        yield f"recover  its operation was {settled.outcome.replace('_', ' ')}"
    for branch in graph.list_branches():
        people = {entry.type_name: entry.entity_count for entry in graph.snapshot(branch).datasets}
        authors = [commit.actor_id or "-" for commit in graph.list_commits(branch)]
        yield (
            f"head     {branch:<8} {people['Person']} persons, {people['Post']} posts, "
            f"commits by {', '.join(authors)}"
        )


def show_mistake(compiled: CompiledSchema) -> None:
    """A query with a typing error, and what the compiler says about it."""
    try:
        compile_query(MISTAKE, compiled.catalog)
    except QueryTypeError as error:
        show(error.render().split("\n"))


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
            line, WIDTH, subsequent_indent=deeper, break_long_words=False, break_on_hyphens=False
        )
        for part in wrapped or [""]:
            print(f"  {part}".rstrip())


if __name__ == "__main__":
    sys.exit(main())
