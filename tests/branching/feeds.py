"""Reading the change feed to its end, and a copy of a graph that is kept up to date by it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import omnigraph as og
from omnigraph.model.changes import ChangeBlock, EntityChange, EntityRecord, FeedPage, Image
from tests.branching.histories import Content

Change = tuple[str, str, str]
EPOCH = dt.date(1970, 1, 1)


def head(graph: og.Graph, branch: str = "main") -> str:
    return graph.list_commits(branch)[0].graph_commit_id


def pages(graph: og.Graph, branch: str = "main", **request: Any) -> Iterator[FeedPage]:
    """The pages of one poll, up to the one with a cursor."""
    place = {name: request.pop(name) for name in ("cursor", "start") if name in request}
    page = graph.poll_changes(branch, **place, **request)
    yield page
    while page.next_page_token is not None:
        assert page.cursor is None and page.caught_up is None
        page = graph.poll_changes(branch, page_token=page.next_page_token, **request)
        yield page
    assert page.cursor is not None and page.caught_up is not None


def polled(graph: og.Graph, branch: str = "main", **request: Any) -> tuple[list[ChangeBlock], str]:
    """Every block up to the head, put together where a commit was split, and the last cursor."""
    blocks: dict[str, ChangeBlock] = {}
    place = {name: request.pop(name) for name in ("cursor", "start") if name in request}
    while True:
        for page in pages(graph, branch, **place, **request):
            for block in page.blocks:
                known = blocks.get(block.cause.graph_commit_id)
                changes = (*known.changes, *block.changes) if known else block.changes
                blocks[block.cause.graph_commit_id] = ChangeBlock(block.cause, changes)
        assert page.cursor is not None
        if page.caught_up:
            return list(blocks.values()), page.cursor
        place = {"cursor": page.cursor}


def listed(changes: Iterable[EntityChange]) -> list[Change]:
    return [(c.op, c.type_name, c.id) for c in changes]


class Replica:
    """A graph as somebody knows it who only ever sees baselines and the feed."""

    def __init__(self) -> None:
        self.content: Content = {}

    def take(self, records: Iterable[EntityRecord]) -> None:
        for record in records:
            key = f"{record.kind}:{record.type_name}", record.id
            assert key not in self.content
            self.content[key] = _values(record.image)

    def apply(self, blocks: Iterable[ChangeBlock]) -> None:
        """Apply blocks, each of which has to fit exactly to what is there."""
        for block in blocks:
            for change in block.changes:
                key = f"{change.kind}:{change.type_name}", change.id
                known = self.content.pop(key, None)
                assert known == (None if change.before is None else _values(change.before)), change
                if change.after is not None:
                    self.content[key] = _values(change.after)


def _values(image: Image) -> dict[str, Any]:
    """The values as an export has them."""
    ends = image.endpoints.to_dict() if image.endpoints is not None else {}
    return _with_epoch_days(image.properties) | ends


def _with_epoch_days(properties: Mapping[str, Any]) -> dict[str, Any]:
    out = dict(properties)
    if out.get("since") is not None:
        out["since"] = (dt.date.fromisoformat(out["since"]) - EPOCH).days
    return out
