"""Lint: every query of a file against a schema, as data for people and tools."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from omnigraph.errors import CompileError, QueryParseError, QueryTypeError
from omnigraph.query import plan
from omnigraph.query.compile import check_query
from omnigraph.query.descriptor import OperationDescriptor, describe_operation
from omnigraph.schema.catalog import Catalog
from omnigraph.syntax import query_ast as ast
from omnigraph.syntax.query_parser import parse_query_file
from omnigraph.syntax.tokens import Source

HARDCODED_MUTATION = "mutation declares no params; hardcoded mutations are easy to miss"

Severity = Literal["error", "warning", "info"]
_SEVERITY_ORDER: tuple[Severity, ...] = ("error", "warning", "info")


def _filled(**members: Any) -> dict[str, Any]:
    return {name: value for name, value in members.items() if value not in (None, [])}


@dataclass(frozen=True, slots=True)
class QueryResult:
    """The outcome for one query."""

    name: str
    kind: Literal["read", "mutation"]
    warnings: tuple[str, ...] = ()
    error: QueryTypeError | None = None
    operation: OperationDescriptor | None = None

    def to_dict(self) -> dict[str, Any]:
        """The JSON form; empty members are left out."""
        return _filled(
            name=self.name,
            kind=self.kind,
            status="error" if self.error else "ok",
            warnings=list(self.warnings),
            error=self.error and self.error.message,
            operation=self.operation and self.operation.to_dict(),
        )


@dataclass(frozen=True, slots=True)
class QueryFinding:
    """A problem or a warning."""

    severity: Severity
    code: str
    message: str
    type_name: str | None = None
    property: str | None = None
    query_names: tuple[str, ...] = ()
    cause: CompileError | None = None
    """The compile error behind an error finding, with its position."""

    def to_dict(self) -> dict[str, Any]:
        """The JSON form; members that do not apply are left out."""
        position = None if self.cause is None else self.cause.position
        return _filled(
            severity=self.severity,
            code=self.code,
            message=self.message,
            type_name=self.type_name,
            property=self.property,
            query_names=list(self.query_names),
            position=position and position.to_dict(),
            hint=self.cause and self.cause.hint,
        )


@dataclass(frozen=True, slots=True)
class LintReport:
    """The outcome for one query file."""

    results: tuple[QueryResult, ...]
    findings: tuple[QueryFinding, ...]

    def count(self, severity: Severity) -> int:
        """How many problems of this severity: findings, and for warnings those of queries too."""
        total = sum(finding.severity == severity for finding in self.findings)
        if severity == "warning":
            total += sum(len(result.warnings) for result in self.results)
        return total

    @property
    def status(self) -> Literal["ok", "error"]:
        """`error` if anything does not compile."""
        return "error" if self.count("error") else "ok"

    def to_dict(self, schema_source: dict[str, str], query_path: str | None) -> dict[str, Any]:
        """The JSON form, with the origin of the schema and of the queries."""
        return {
            "status": self.status,
            "schema_source": schema_source,
            "query_path": query_path,
            "queries_processed": len(self.results),
            "errors": self.count("error"),
            "warnings": self.count("warning"),
            "infos": self.count("info"),
            "results": [result.to_dict() for result in self.results],
            "findings": [finding.to_dict() for finding in self.findings],
        }


def lint_queries(origin: str | bytes | Path | Source, catalog: Catalog) -> LintReport:
    """Check every query of a text; problems are reported, not raised."""
    try:
        file = parse_query_file(origin)
    except QueryParseError as error:
        return LintReport((), (QueryFinding("error", "Q000", error.message, cause=error),))
    plans: list[plan.QueryPlan] = []
    results: list[QueryResult] = []
    findings: list[QueryFinding] = []
    for query in file.queries:
        kind: Literal["read", "mutation"] = (
            "mutation" if isinstance(query.body, ast.WriteBody) else "read"
        )
        warnings = (HARDCODED_MUTATION,) if kind == "mutation" and not query.parameters else ()
        try:
            compiled = check_query(query, file.source, catalog)
        except QueryTypeError as error:
            results.append(QueryResult(query.name, kind, warnings, error))
            code = error.diagnostic or "type"
            findings.append(
                QueryFinding("error", code, error.message, query_names=(query.name,), cause=error)
            )
            continue
        plans.append(compiled)
        operation = describe_operation(compiled, catalog)
        results.append(QueryResult(query.name, kind, warnings, None, operation))
    findings += _never_updated(plans, catalog)
    findings.sort(
        key=lambda f: (
            _SEVERITY_ORDER.index(f.severity),
            f.type_name or "",
            f.property or "",
            f.message,
        )
    )
    return LintReport(tuple(results), tuple(findings))


def _never_updated(plans: list[plan.QueryPlan], catalog: Catalog) -> list[QueryFinding]:
    """L201: nullable properties that no update sets, of types that do have updates."""
    updated: dict[str, set[str]] = {}
    queries: dict[str, set[str]] = {}
    for compiled in plans:
        if not isinstance(compiled, plan.MutationPlan):
            continue
        for step in plan.statements_of(compiled.steps):
            if isinstance(step, plan.UpdateNodes):
                updated.setdefault(step.type_name, set()).update(
                    assignment.property for assignment in step.assignments
                )
                queries.setdefault(step.type_name, set()).add(compiled.name)
    return [
        QueryFinding(
            "warning",
            "L201",
            f"{type_name}.{declared.name} exists in schema but no update query sets it",
            type_name,
            declared.name,
            tuple(sorted(queries[type_name])),
        )
        for type_name, assigned in updated.items()
        for declared in catalog.nodes[type_name].properties.values()
        if declared.type.nullable
        and declared.name not in catalog.nodes[type_name].key
        and declared.embed is None
        and declared.name not in assigned
    ]
