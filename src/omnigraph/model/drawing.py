"""A small picture of the nodes and edges in rows: one SVG, without script and without network.

Strokes and letters have the colour of the page around them, so it can be read on light and dark.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from html import escape
from itertools import pairwise
from typing import Any

NODES_MAX = 40
"""More than these cannot be told apart; what comes later is left out and counted."""
LABEL_CHARACTERS = 18
_SIZE, _MARGIN, _RADIUS = 420, 70, 7
PATH_SUFFIX = ".nodes"


def graph_picture(rows: Iterable[Mapping[str, Any]]) -> str | None:
    """An SVG of the entities and paths of some rows; None if nothing in them is connected.

    Whole nodes (`$p.*`) and the nodes of paths (`$x.nodes`) are circles, whole edges (`$e.*`) and
    the steps of paths are arrows.
    """
    labels: dict[str, str] = {}
    edges: dict[tuple[str, str], None] = {}
    for row in rows:
        for name, value in row.items():
            if isinstance(value, Mapping) and {"id", "src", "dst"} <= value.keys():
                ends = str(value["src"]), str(value["dst"])
                edges.setdefault(ends)
                for end in ends:
                    labels.setdefault(end, end)
            elif isinstance(value, Mapping) and "id" in value:
                labels[str(value["id"])] = _label(value)
            elif name.endswith(PATH_SUFFIX) and isinstance(value, list):
                ids = [str(each) for each in value]
                for each in ids:
                    labels.setdefault(each, each)
                edges.update(dict.fromkeys(pairwise(ids)))
    return _drawn(labels, list(edges)) if edges else None


def _label(node: Mapping[str, Any]) -> str:
    """What a node is called: its first text that is not the id, else the id."""
    texts = (value for key, value in node.items() if key != "id" and isinstance(value, str))
    return next(texts, str(node["id"]))


def _drawn(labels: Mapping[str, str], edges: list[tuple[str, str]]) -> str:
    shown = list(labels)[:NODES_MAX]
    places = {node: _place(at, len(shown)) for at, node in enumerate(shown)}
    arrows = [_arrow(places[a], places[b]) for a, b in edges if a in places and b in places]
    circles = [_circle(places[node], labels[node], node) for node in shown]
    left = len(labels) - len(shown)
    more = (
        f'<text x="8" y="{_SIZE - 8}" opacity="0.7">… and {left} more nodes</text>' if left else ""
    )
    marker = (
        '<defs><marker id="og-tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" '
        'markerHeight="7" orient="auto"><path d="M0 0 L8 4 L0 8 z" fill="currentColor"/>'
        "</marker></defs>"
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_SIZE} {_SIZE}" width="{_SIZE}" '
        f'height="{_SIZE}" role="img" font-family="sans-serif" font-size="11" '
        f'fill="currentColor">{marker}{"".join(arrows)}{"".join(circles)}{more}</svg>'
    )


def _place(at: int, count: int) -> tuple[float, float]:
    """On a circle, the first at the top."""
    angle = 2 * math.pi * at / count - math.pi / 2
    reach = _SIZE / 2 - _MARGIN
    return _SIZE / 2 + reach * math.cos(angle), _SIZE / 2 + reach * math.sin(angle)


def _arrow(start: tuple[float, float], end: tuple[float, float]) -> str:
    if start == end:
        x, y = start
        return (
            f'<circle cx="{x:.1f}" cy="{y - 12:.1f}" r="8" fill="none" stroke="currentColor" '
            'opacity="0.6"/>'
        )
    dx, dy = end[0] - start[0], end[1] - start[1]
    gap = (_RADIUS + 2) / math.hypot(dx, dy)
    x1, y1 = start[0] + dx * gap, start[1] + dy * gap
    x2, y2 = end[0] - dx * gap, end[1] - dy * gap
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="currentColor" '
        'opacity="0.6" marker-end="url(#og-tip)"/>'
    )


def _circle(at: tuple[float, float], label: str, node: str) -> str:
    x, y = at
    is_right = x >= _SIZE / 2
    anchor, shift = ("start", _RADIUS + 4) if is_right else ("end", -_RADIUS - 4)
    text = label if len(label) <= LABEL_CHARACTERS else f"{label[: LABEL_CHARACTERS - 1]}…"
    return (
        f'<g><title>{escape(node)}</title><circle cx="{x:.1f}" cy="{y:.1f}" r="{_RADIUS}" '
        'fill="rgba(66, 133, 244, 0.6)" stroke="currentColor"/>'
        f'<text x="{x + shift:.1f}" y="{y + 4:.1f}" text-anchor="{anchor}">'
        f"{escape(text)}</text></g>"
    )
