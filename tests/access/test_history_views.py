"""What an actor sees of commits: as on copies of the graph without what is hidden."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

import omnigraph as og
from omnigraph.errors import InputError, NotFound
from omnigraph.model.changes import ChangeBlock, EntityChange
from omnigraph.schema.catalog import EdgeType
from tests.access.views import ACTOR, CATALOG, RandomView, random_views
from tests.engines.matches import SCHEMA, records
from tests.support.budgets import FEW, budget
from tests.support.reference import Tables

WITH_BLOBS = SCHEMA.replace("seen: DateTime?", "seen: DateTime?\n    photo: Blob?")
COMPARED = ("name", "age", "rank", "bio", "tags", "note", "size", "motto", "open", "since")
"""Properties whose JSON is the same everywhere."""

Entity = tuple[str, str]
Content = dict[Entity, dict[str, Any]]
"""By type key and id: the compared properties, and the ends of an edge."""

EXAMPLES = settings(
    FEW, suppress_health_check=[*FEW.suppress_health_check, HealthCheck.function_scoped_fixture]
)


@dataclass
class History:
    """A graph with some commits on two branches."""

    graph: og.Graph

    @cached_property
    def commits(self) -> dict[str, list[str]]:
        """The commits of each branch, oldest first."""
        return {
            name: [each.graph_commit_id for each in reversed(self.graph.list_commits(name))]
            for name in ("main", "side")
        }

    def content(self, branch: str, commit: str, view: RandomView) -> Content:
        """What a view leaves of a commit."""
        key = (branch, commit)
        if key not in self._tables:
            self._tables[key] = self._read(branch, commit)
        return content_of(view.left_of(self._tables[key]), view)

    @cached_property
    def _tables(self) -> dict[tuple[str, str], Tables]:
        return {}

    def _read(self, branch: str, commit: str) -> Tables:
        return exported(b"".join(self.graph.export(branch=branch, snapshot=commit)))


def exported(lines: bytes) -> Tables:
    """The rows of an export, by type key."""
    tables: dict[str, list[dict[str, Any]]] = {str(type.table_key): [] for type in CATALOG.types}
    for line in lines.splitlines():
        record = json.loads(line)
        if "type" in record:
            row = {"id": record["data"]["name"], **record["data"]}
            tables[f"node:{record['type']}"].append(row)
            continue
        type = CATALOG.edges[record["edge"]]
        ends = {
            end: _reference(type, end, record[given], record.get(f"{given}_type"))
            for end, given in (("src", "from"), ("dst", "to"))
        }
        tables[f"edge:{record['edge']}"].append({**record["data"], **ends})
    return tables


def content_of(tables: Tables, view: RandomView) -> Content:
    """What is compared of some rows: of their properties those that a view shows."""
    return {
        (type_key, row["id"]): {
            name: row[name]
            for name in (*COMPARED, "src", "dst")
            if name in row and (name in ("src", "dst") or _shows(view, type_key, name))
        }
        for type_key, rows in tables.items()
        for row in rows
    }


def _shows(view: RandomView, type_key: str, name: str) -> bool:
    properties = view.types[type_key.partition(":")[2]].properties
    return properties is None or name in properties


def _reference(type: EdgeType, end: str, id: str, named: str | None) -> str:
    return f"{type.end_types[end][named]}{id}" if named is not None else id


def history(path: Path, seed: int) -> History:
    """A graph whose commits show and hide entities of many a view."""
    choices = random.Random(seed)
    graph = og.init(path / f"{seed}.omni", schema=WITH_BLOBS)
    first = records(choices)
    for record in first:
        if record.get("type") == "Person" and choices.random() < 0.5:
            record["data"]["photo"] = "base64:" + choices.choice(["AAEC", "CQkJCQ=="])
    load(graph, first[: len(first) // 2])
    load(graph, first[len(first) // 2 :])
    graph.create_branch("side")
    for number in range(6):
        on = "side" if number % 2 else "main"
        change(graph, choices, on)
        if number == 3:
            graph.optimize()
    return History(graph)


def load(graph: og.Graph, found: list[dict[str, Any]], branch: str = "main") -> None:
    lines = "\n".join(map(json.dumps, sorted(found, key=lambda each: "edge" in each)))
    graph.load(data=lines, mode="append", branch=branch)


def change(graph: og.Graph, choices: random.Random, branch: str) -> None:
    """One commit: entities of all types are updated, deleted and inserted."""
    tables = History(graph)._read(branch, graph.list_commits(branch)[0].graph_commit_id)
    people, cities = ([row["id"] for row in tables[f"node:{t}"]] for t in ("Person", "City"))
    match choices.randrange(4):
        case 0 if len(people) > 2:
            graph.mutate(
                f'query q() {{ delete Person where name = "{choices.choice(people)}" }}',
                branch=branch,
            )
        case 1:
            name, age = choices.choice(people), choices.randint(-1, 2)
            graph.mutate(
                f"query q() {{ update Person set {{ age: {age}, note: {age + 1} }} "
                f'where name = "{name}" }}',
                branch=branch,
            )
        case 2:
            name, size = choices.choice(cities), choices.randint(0, 1)
            graph.mutate(
                f"query q() {{ update City set {{ size: {size}, note: {size} }} "
                f'where name = "{name}" }}',
                branch=branch,
            )
        case _:
            one, other = choices.choices(people, k=2)
            load(
                graph,
                [
                    {"edge": "Knows", "from": one, "to": other, "data": {"since": 1}},
                    {"edge": "LivesIn", "from": one, "to": choices.choice(cities), "data": {}},
                ],
                branch,
            )


@pytest.fixture(scope="module")
def histories(tmp_path_factory: pytest.TempPathFactory) -> list[History]:
    path = tmp_path_factory.mktemp("histories")
    return [history(path, seed) for seed in range(budget(2, 8))]


def changed(before: Content, after: Content) -> dict[Entity, tuple[Any, Any]]:
    """What differs, with both images."""
    return {
        entity: (before.get(entity), after.get(entity))
        for entity in before.keys() | after.keys()
        if before.get(entity) != after.get(entity)
    }


def images(found: list[EntityChange]) -> dict[Entity, tuple[Any, Any]]:
    shown = {
        (f"{each.kind}:{each.type_name}", each.id): (
            _image(each, each.before),
            _image(each, each.after),
        )
        for each in found
    }
    assert len(shown) == len(found)
    for each in found:
        assert each.op == ("insert" if not each.before else "update" if each.after else "delete")
    return shown


def _image(change: EntityChange, image: Any) -> dict[str, Any] | None:
    if image is None:
        return None
    properties = {name: image.properties[name] for name in COMPARED if name in image.properties}
    if change.kind == "node":
        return properties
    type, ends = CATALOG.edges[change.type_name], image.endpoints
    return {
        **properties,
        "src": _reference(type, "src", ends.source, ends.source_type),
        "dst": _reference(type, "dst", ends.target, ends.target_type),
    }


def only_compared(found: dict[Entity, tuple[Any, Any]]) -> dict[Entity, tuple[Any, Any]]:
    """Without updates of what is not compared."""
    return {entity: pair for entity, pair in found.items() if pair[0] != pair[1]}


def actor_of(history: History, view: RandomView) -> og.Graph:
    note(repr(view))
    return og.Graph(history.graph._kernel, policy=view.policy).acting_as(ACTOR)


@pytest.mark.slow
@given(st.data(), random_views())
@EXAMPLES
def test_c_acc_005_diffs_and_changes_are_those_without_what_is_hidden(
    histories: list[History], data: st.DataObject, view: RandomView
):
    history = data.draw(st.sampled_from(histories))
    graph = actor_of(history, view)
    branch = data.draw(st.sampled_from(["main", "side"]))
    line = history.commits[branch]
    contents = [history.content(branch, commit, view) for commit in line]
    one, other = (data.draw(st.integers(1, len(line) - 1)) for _ in range(2))
    found = graph.diff(line[one], line[other], direct=True)
    wanted = changed(contents[one], contents[other])
    assert only_compared(images(list(found.changes(images=True)))) == wanted
    page = graph.diff_page(line[one], line[other], direct=True, limit=1)
    seen: list[Any] = []
    while page.next_page_token:
        seen += page.changes
        page = graph.diff_page(
            line[one], line[other], direct=True, limit=1, page_token=page.next_page_token
        )
    assert {(each.type_name, each.id) for each in (*seen, *page.changes)} >= {
        (key.partition(":")[2], id) for key, id in wanted
    }
    for at in range(1, len(line)):
        exact = images(list(graph.commit_changes(line[at])))
        assert only_compared(exact) == changed(contents[at - 1], contents[at])
    blocks: dict[str, list[EntityChange]] = {}
    for block in polled(graph, branch):
        blocks.setdefault(block.cause.graph_commit_id, []).extend(block.changes)
    for at in range(1, len(line)):
        wanted = changed(contents[at - 1], contents[at])
        assert only_compared(images(blocks.get(line[at], []))) == wanted


def polled(graph: og.Graph, branch: str) -> Iterator[ChangeBlock]:
    place: dict[str, Any] = {"start": "beginning"}
    while True:
        page = graph.poll_changes(branch, **place, limit=3)
        yield from page.blocks
        if page.next_page_token is not None:
            place = {"page_token": page.next_page_token}
        elif place == {"cursor": page.cursor}:
            return
        else:
            place = {"cursor": page.cursor}


@pytest.mark.slow
@given(st.data(), random_views())
@EXAMPLES
def test_c_acc_005_whole_contents_and_entities_are_those_without_what_is_hidden(
    histories: list[History], data: st.DataObject, view: RandomView
):
    history = data.draw(st.sampled_from(histories))
    graph = actor_of(history, view)
    line = history.commits["main"]
    content = history.content("main", line[-1], view)
    shown = {str(type.table_key): type for type in view.catalog.types}
    counts = {key: sum(entity[0] == key for entity in content) for key in shown}

    found = {(f"{t.entity_kind}:{t.type_name}", t.entity_count) for t in graph.snapshot().datasets}
    assert found == set(counts.items())
    described = {f"{t.kind}:{t.name}": t.entity_count for t in graph.describe_schema().types}
    assert {key: described[key] for key in shown} == counts
    assert {key for key in described if not key.startswith("interface:")} == shown.keys()

    lines = b"".join(graph.export())
    given = exported(lines)
    assert content_of(given, RandomView.of_everything()) == content
    assert len(lines.splitlines()) == len(content)
    everything = history.content("main", line[-1], RandomView.of_everything())
    photos = {
        row["id"]: row["photo"]
        for row in history._tables["main", line[-1]]["node:Person"]
        if row.get("photo") is not None
    }
    sees_photos = "node:Person" in shown and _shows(view, "node:Person", "photo")
    photos = {id: photo for id, photo in photos.items() if ("node:Person", id) in content}
    assert {row["id"]: row["photo"] for row in given["node:Person"] if row.get("photo")} == (
        photos if sees_photos else {}
    )
    baseline = graph.change_baseline()
    assert baseline.entity_count == len(content)
    assert {(f"{e.kind}:{e.type_name}", e.id) for e in baseline} == content.keys()

    for key, id in everything:
        if key not in shown:
            with pytest.raises(NotFound):
                graph.entity_at(key, id)
            continue
        entity = graph.entity_at(key, id)
        assert (entity is not None) == ((key, id) in content)
        for name, value in content.get((key, id), {}).items():
            assert name in ("src", "dst") or (entity or {})[name] == value
    for key in shown:
        ids = set(graph.table(key, columns=["id"]).to_arrow()["id"].to_pylist())
        assert ids == {id for own, id in content if own == key}
    for key, id in everything:
        if key != "node:Person":
            continue
        try:
            photo = graph.blob("node", "Person", id, "photo").read()
        except NotFound:
            assert id not in photos
            continue
        except InputError:
            assert not sees_photos
            continue
        assert photos[id] == "base64:" + base64.b64encode(photo).decode()


@pytest.mark.spark
@pytest.mark.xdist_group("spark_queries")
@given(st.data(), random_views())
@settings(EXAMPLES, max_examples=budget(2, 20))
def test_c_acc_005_frames_are_those_without_what_is_hidden(
    spark: Any, histories: list[History], data: st.DataObject, view: RandomView
):
    history = data.draw(st.sampled_from(histories))
    graph = actor_of(history, view)
    branch = data.draw(st.sampled_from(["main", "side"]))
    content = history.content(branch, history.commits[branch][-1], view)
    for type in data.draw(st.permutations(view.catalog.types))[:3]:
        key = str(type.table_key)
        named = [
            name
            for name in ("src", "dst", "age", "note", "size", "since")
            if name in {*type.properties, *(("src", "dst") if isinstance(type, EdgeType) else ())}
        ]
        rows = graph.frame(key, branch=branch, columns=["id", *named]).collect()
        found = {
            (key, row["id"]): {name: row[name] for name in named if name not in ("src", "dst")}
            for row in rows
        }
        assert len(found) == len(rows)
        assert found == {
            entity: {name: values.get(name) for name in named if name not in ("src", "dst")}
            for entity, values in content.items()
            if entity[0] == key
        }


@pytest.mark.slow
@given(st.data(), random_views())
@EXAMPLES
def test_c_acc_005_the_history_of_an_entity_is_that_without_what_is_hidden(
    histories: list[History], data: st.DataObject, view: RandomView
):
    history = data.draw(st.sampled_from(histories))
    graph = actor_of(history, view)
    branch = data.draw(st.sampled_from(["main", "side"]))
    line = history.commits[branch]
    contents = [history.content(branch, commit, view) for commit in line]
    known = sorted(
        {
            entity
            for commit in line
            for entity in history.content(branch, commit, RandomView.of_everything())
        }
    )
    for key, id in data.draw(st.lists(st.sampled_from(known), min_size=1, max_size=5)):
        if not any(str(type.table_key) == key for type in view.catalog.types):
            with pytest.raises(NotFound):
                list(graph.entity_history(key, id, branch=branch))
            continue
        found = [
            (version.cause.graph_commit_id, images([version.change])[key, id])
            for version in graph.entity_history(key, id, branch=branch)
        ]
        wanted = [
            (line[at], (contents[at - 1].get((key, id)), contents[at].get((key, id))))
            for at in reversed(range(1, len(line)))
            if contents[at - 1].get((key, id)) != contents[at].get((key, id))
        ]
        assert [each for each in found if each[1][0] != each[1][1]] == wanted
