"""The recorded plans of queries: what `test_golden_plans.py` compares today's compiler with.

The record has the queries of the case files and of the examples. A plan is written as text without
the fields that have their default value, so that a new field of a plan changes no recorded one.

    python -m tests.query.golden_plans          add new queries to the record, drop those gone
    python -m tests.query.golden_plans NAME …   also record these anew, although their plan changed
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import sys
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from omnigraph.errors import OmnigraphError
from omnigraph.model.types import ValueType
from omnigraph.query.compile import check_query, compile_query
from omnigraph.query.plan import QueryPlan
from omnigraph.schema.catalog import Catalog
from omnigraph.schema.compile import compile_schema
from omnigraph.syntax.query_parser import parse_query_file
from tests.cases.format import all_cases

RECORD = Path(__file__).with_name("golden_plans.txt")
EXAMPLES = Path(__file__).parents[2] / "examples"

_COLUMNS = 100
_HEADER = (
    "# Written by `python -m tests.query.golden_plans`: query, its digest, the plan's digest.\n"
)
_TEXTS = "# The plans, compressed, in the same order.\n"
_BETWEEN = "\n\f\n"


@dataclass(frozen=True)
class Entry:
    """One query of the record."""

    query: str
    """A digest of its text."""
    plan: str
    """The text of its plan."""


# --- plans as text --------------------------------------------------------------------------------


def plan_text(value: object, indent: str = "") -> str:
    """A plan, or a part of one, without the fields that have their default value."""
    inner = indent + " "
    if isinstance(value, ValueType):
        return str(value)
    if dataclasses.is_dataclass(value):
        shown = [
            f"{inner}{field.name}: {plan_text(part, inner)}"
            for field in dataclasses.fields(value)
            if field.compare and not _is_default(field, part := getattr(value, field.name))
        ]
        return "\n".join([type(value).__name__, *shown])
    if isinstance(value, tuple) and any(map(dataclasses.is_dataclass, value)):
        return "".join(f"\n{inner}- {plan_text(part, inner + ' ')}" for part in value)
    if isinstance(value, tuple):
        return f"[{', '.join(plan_text(part, inner) for part in value)}]"
    return repr(value)


def _is_default(field: dataclasses.Field[object], value: object) -> bool:
    if field.default_factory is not dataclasses.MISSING:
        return value == field.default_factory()
    return field.default is not dataclasses.MISSING and value == field.default


# --- the queries of today -------------------------------------------------------------------------


def compiled() -> dict[str, Entry]:
    """Every query that compiles, of the case files and of the examples, by name."""
    found = {name: Entry(digest(text), plan_text(plan)) for name, text, plan in _queries()}
    return dict(sorted(found.items()))


def _queries() -> Iterator[tuple[str, str, QueryPlan]]:
    catalogs: dict[str, Catalog] = {}
    for case in all_cases():
        schema = case.setup.schema
        if schema not in catalogs:
            catalogs[schema] = compile_schema(schema).catalog
        try:
            plan = compile_query(case.query, catalogs[schema], case.select)
        except OmnigraphError:
            continue
        yield str(case), case.query, plan
    for path in sorted(EXAMPLES.rglob("*.gq")):
        catalog = compile_schema(path.parent / "schema.pg").catalog
        file = parse_query_file(path)
        for query in file.queries:
            name = f"{path.relative_to(EXAMPLES).as_posix()}: {query.name}"
            text = file.source.text[query.span.start : query.span.end]
            yield name, text, check_query(query, file.source, catalog)


def digest(text: str) -> str:
    """A short name for a text."""
    return hashlib.sha256(text.encode()).hexdigest()[:12]


# --- the record -----------------------------------------------------------------------------------


def recorded() -> dict[str, Entry]:
    """The queries of the record, by name."""
    listed, _, packed = RECORD.read_text().removeprefix(_HEADER).partition(_TEXTS)
    texts = zlib.decompress(base64.b85decode("".join(packed.split()))).decode().split(_BETWEEN)
    entries = {}
    for line, text in zip(listed.splitlines(), texts, strict=True):
        name, query, plan = line.split("\t")
        assert digest(text) == plan, f"{name}: the record is damaged; write it again"
        entries[name] = Entry(query, text)
    return entries


def write(entries: dict[str, Entry]) -> None:
    """Make these the record."""
    lines = [f"{name}\t{each.query}\t{digest(each.plan)}\n" for name, each in entries.items()]
    texts = _BETWEEN.join(each.plan for each in entries.values())
    packed = base64.b85encode(zlib.compress(texts.encode(), 9)).decode()
    lines += [_TEXTS]
    lines += [f"{packed[at : at + _COLUMNS]}\n" for at in range(0, len(packed), _COLUMNS)]
    RECORD.write_text(_HEADER + "".join(lines))


def main(names: list[str]) -> None:
    """Bring the record up to date; the plan of an unchanged query stays unless it is named."""
    known = recorded() if RECORD.exists() else {}
    current = compiled()
    for name, entry in current.items():
        before = known.get(name)
        if before is not None and before.query == entry.query and name not in names:
            current[name] = before
    write(current)


if __name__ == "__main__":
    main(sys.argv[1:])
