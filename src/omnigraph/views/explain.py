"""Descriptions of views: what an actor sees of each type, and what a view adds to a query."""

from __future__ import annotations

from collections.abc import Iterator

from omnigraph.query import plan
from omnigraph.views.rows import hiding_ends
from omnigraph.views.view import View


def view_lines(view: View) -> list[str]:
    """A line for each visible type: its properties, the conditions on its rows, and the rules."""
    lines = []
    for each in view.types.values():
        properties = ", ".join(each.type.properties) or "no properties"
        rows = "" if each.rows is None else f" where {_either(view, each.type.table_key)}"
        lines.append(f"{each.type.name}: {properties}{rows} (by {', '.join(each.rules)})")
    return lines


def added_conditions(view: View, compiled: plan.QueryPlan) -> list[str]:
    """The conditions that a view adds to a query, one line per type with restricted rows."""
    named = set(_names(compiled))
    nodes = {node.name for name in named for node in view.catalog.node_types(name)}
    lines = []
    for key, each in view.types.items():
        if each.type.name not in nodes | named or not view.restricts(key):
            continue
        tests = [] if each.rows is None else [_either(view, key)]
        tests += [f"its {end} is visible" for end in hiding_ends(view, key)]
        lines.append(f"  Visible {each.type.name} where {' and '.join(tests)}")
    return lines


def _either(view: View, table_key: str) -> str:
    grants = view.conditions(table_key) or ()
    texts = [f"{grant.text} (rule {grant.rule_id})" for grant in grants]
    return " or ".join(texts) or "false"


def _names(compiled: plan.QueryPlan) -> Iterator[str]:
    """The types that a plan names."""
    for node in plan.parts_of(compiled):
        match node:
            case plan.Scan():
                yield node.type_name
            case plan.Expand():
                yield from (node.edge_type, *node.declared, node.source_type, node.target_type)
