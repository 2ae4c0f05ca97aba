"""`omnigraph lint`, `fmt`, `translate` and `lsp`: texts of queries, and editors."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from omnigraph.cli.failures import ExitCode, Rejected, UsageError, error_lines, require_library
from omnigraph.cli.files import compile_schema_file, read_source, replaced_file, require_file
from omnigraph.cli.help import Commands, FileCommand, UpkeepCommand
from omnigraph.cli.opening import open_to_read
from omnigraph.cli.options import (
    Given,
    JsonFlag,
    SchemaFile,
    argument,
    flag,
    one_of,
    option,
)
from omnigraph.cli.output import Line, Styled, counted, output_of
from omnigraph.syntax.tokens import FILE_SUFFIXES

if TYPE_CHECKING:
    from omnigraph.errors import CompileError
    from omnigraph.query.lint import LintReport
    from omnigraph.schema.catalog import Catalog
    from omnigraph.syntax.tokens import Source

COMMANDS = Commands()

QueryFile = Annotated[Path, option("--query", "FILE.gq", "the queries to check")]
ExplainFlag = Annotated[
    bool, flag("--explain", "also show the typed plan of every query that compiles")
]


@COMMANDS.add(UpkeepCommand, former="check")
def lint(
    ctx: typer.Context,
    *,
    schema: SchemaFile = None,
    query: QueryFile,
    explain: ExplainFlag = False,
    json: JsonFlag = False,
) -> None:
    """Check a query file against a schema.

    Every query is parsed and type-checked; one bad query does not hide the others. The schema is a
    file, and no graph is needed, or it is the one of a graph. The exit code is 1 if anything does
    not compile, and 0 if there are only warnings.

    omnigraph lint --schema examples/social/schema.pg --query examples/social/queries.gq
    omnigraph lint --schema schema.pg --query queries.gq --explain
    omnigraph lint --store team.omni --query queries.gq --json
    """
    from omnigraph.errors import QueryParseError
    from omnigraph.query.lint import lint_queries

    output = output_of(ctx)
    catalog, schema_source = _schema_of(ctx, schema)
    source = read_source(query, QueryParseError)
    report = lint_queries(source, catalog)
    plans = _plans(source, catalog) if explain else {}
    if json:
        document = report.to_dict(schema_source, str(query))
        for at, plan in plans.items():
            document["results"][at]["plan"] = plan.split("\n")
        output.json(document)
    else:
        for plan in plans.values():
            output.lines([*([line] for line in plan.split("\n")), []])
        output.lines(_report_lines(report))
    if report.status == "error":
        raise typer.Exit(ExitCode.FAILURE)


FormattedFiles = Annotated[
    list[Path], argument("PATH...", "`.pg` and `.gq` files, or directories of them")
]
CheckFlag = Annotated[bool, flag("--check", "change nothing; exit code 1 if a file would change")]


@COMMANDS.add(FileCommand)
def fmt(
    ctx: typer.Context, paths: FormattedFiles, *, check: CheckFlag = False, json: JsonFlag = False
) -> None:
    """Lay out schemas and queries: indentation, spaces and blank lines.

    Comments, the order of everything and the ends of lines stay, and so does what a text means. A
    file that does not parse is left as it is, and the exit code is 1.

    omnigraph fmt examples
    omnigraph fmt schema.pg queries.gq --check
    """
    from omnigraph.errors import QueryParseError, SchemaParseError
    from omnigraph.syntax.formatting import format_text, language_of

    output = output_of(ctx)
    changed: list[Path] = []
    files = list(_language_files(paths))
    for path in files:
        language = language_of(path.name)
        source = read_source(path, QueryParseError if language == "gq" else SchemaParseError)
        formatted = format_text(source, language)
        if formatted.encode() != path.read_bytes():
            changed.append(path)
            if not check:
                with replaced_file(path) as stream:
                    stream.write(formatted.encode())
    document = {"checked": len(files), "changed": [str(path) for path in changed]}
    would = "would be laid out anew" if check else "laid out anew"
    lines: list[Line] = [(f"{path}: {would}",) for path in changed]
    lines.append((f"{counted(len(files), 'file')} looked at, {len(changed)} {would}",))
    output.show(document, lines, json=json)
    if check and changed:
        raise typer.Exit(ExitCode.FAILURE)


ForeignFile = Annotated[Path, argument("FILE", "the queries; semicolons end them")]
Dialect = Annotated[
    str, option("--from", "LANGUAGE", "`cypher`, or `kuzu`", check=one_of(("cypher", "kuzu")))
]


@COMMANDS.add(UpkeepCommand)
def translate(
    ctx: typer.Context,
    file: ForeignFile,
    *,
    dialect: Dialect,
    schema: SchemaFile = None,
    json: JsonFlag = False,
) -> None:
    """Translate queries of another language: the reads of openCypher.

    The result is laid out and goes to stdout; a comment above a query says where it may answer
    differently. With a schema, a file or that of a graph, names are those of its types, parameters
    get their types, and every query is compiled. What has no counterpart is reported with its line
    and column, and the exit code is 1. `kuzu` is the dialect of Kuzu, where a pattern may take a
    relationship twice.

    omnigraph translate --from cypher queries.cypher --schema schema.pg
    omnigraph translate --from kuzu queries.cypher --store team.omni
    """
    from omnigraph.errors import TranslationError
    from omnigraph.translate.queries import translate_cypher

    output = output_of(ctx)
    catalog = None
    if schema is not None or Given.of(ctx).places():
        catalog, _ = _schema_of(ctx, schema)
    source = read_source(file, TranslationError)
    found = translate_cypher(source, catalog, "kuzu" if dialect == "kuzu" else "cypher")
    if json:
        output.json(found.to_dict())
        if found.errors:
            raise typer.Exit(ExitCode.FAILURE)
        return
    output.verbatim(found.text.encode())
    if found.errors:
        raise Rejected(found.errors)


LspSchemaOption = Annotated[
    Path | None,
    option("--schema", "FILE.pg", "of all queries; by default the nearest `schema.pg` of each"),
]


@COMMANDS.add(FileCommand)
def lsp(ctx: typer.Context, *, schema: LspSchemaOption = None, json: JsonFlag = False) -> None:
    """Help an editor with schemas and queries, by the Language Server Protocol.

    An editor starts this command and talks to it over stdin and stdout: problems while a text is
    written, completions, what names mean, where they are declared, and the layout of `fmt`. A query
    is checked against the nearest `schema.pg`, in its folder or above. `--json` shapes the errors
    of a command that does not start.

    omnigraph lsp
    omnigraph lsp --schema models/social.pg
    """
    require_library("omnigraph.lsp", "lsp", extra="lsp")
    from omnigraph import __version__
    from omnigraph.lsp import language_server

    if schema is not None:
        require_file(schema)
    # Duplicated descriptors: the library closes them at the end.
    with os.fdopen(os.dup(0), "rb") as asked, os.fdopen(os.dup(1), "wb") as answers:
        language_server(__version__, schema).start_io(asked, answers)


def _language_files(paths: list[Path]) -> Iterator[Path]:
    """The given files and those below the given directories, in order; raises `NotFound`."""
    for path in paths:
        if path.is_dir():
            yield from sorted(each for each in path.rglob("*") if each.suffix in FILE_SUFFIXES)
            continue
        require_file(path)
        if path.suffix not in FILE_SUFFIXES:
            raise UsageError(
                f"`{path}` is no `.pg` or `.gq` file", hint="rename it, or leave it out"
            )
        yield path


def _schema_of(ctx: typer.Context, schema: Path | None) -> tuple[Catalog, dict[str, str]]:
    """The types to check against, and their origin."""
    from omnigraph.schema.compile import compile_schema

    if schema is None:
        graph = open_to_read(ctx)
        return compile_schema(graph.schema_source).catalog, {"kind": "graph", "uri": graph.uri}
    for word in Given.of(ctx).places():
        raise UsageError(
            f"`--schema` and `{word}` are mutually exclusive",
            hint="check against a file or against a graph",
        )
    catalog = compile_schema_file(schema, output_of(ctx)).catalog
    return catalog, {"kind": "file", "path": str(schema)}


def _plans(source: Source, catalog: Catalog) -> dict[int, str]:
    """The plan of each query that compiles, by its position in the file."""
    from omnigraph.errors import QueryParseError, QueryTypeError
    from omnigraph.query.compile import check_query
    from omnigraph.query.explain import explain
    from omnigraph.syntax.query_parser import parse_query_file

    plans: dict[int, str] = {}
    try:
        queries = parse_query_file(source).queries
    except QueryParseError:
        return plans
    for at, query in enumerate(queries):
        try:
            plans[at] = explain(check_query(query, source, catalog))
        except QueryTypeError:
            continue
    return plans


def _place(error: CompileError) -> int:
    """Sort key by position; the JSON report keeps its own defined order."""
    return error.position.byte_start if error.position is not None else 0


def _report_lines(report: LintReport) -> Iterator[Line]:
    """Errors with their positions, then warnings, then a summary."""
    causes = [finding.cause for finding in report.findings if finding.cause is not None]
    for cause in sorted(causes, key=_place):
        yield from error_lines(cause)
        yield ()
    warnings = [
        f"{result.name}: {warning}" for result in report.results for warning in result.warnings
    ]
    for finding in report.findings:
        if finding.cause is None:
            names = f" ({', '.join(finding.query_names)})" if finding.query_names else ""
            warnings.append(f"{finding.code}: {finding.message}{names}")
    for warning in warnings:
        yield Styled("warning:", "yellow"), f" {warning}"
    if warnings:
        yield ()
    queries = counted(len(report.results), "query", "queries")
    errors, warned = report.count("error"), report.count("warning")
    if errors or warned:
        counts = f"{counted(errors, 'error')}, {counted(warned, 'warning')}"
        yield (Styled(f"{queries} checked: {counts}", "bold red" if errors else "bold yellow"),)
    else:
        yield (Styled(f"{queries} checked, no problems", "bold green"),)
