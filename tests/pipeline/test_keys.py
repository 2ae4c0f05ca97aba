"""Keys that fit a worker: how they are shared out, and how missing ones are found."""

from __future__ import annotations

import json
from collections import Counter

import pyarrow as pa
import pytest

from omnigraph.commit.validation.constraints import Endpoint, EntityIdentity, Unique
from omnigraph.commit.validation.evaluation import KeyColumns, are_distinct, in_one_width
from omnigraph.loading.check_plan import CheckJob, CheckPlan, KeyRule, RuleColumns, WrittenPart
from omnigraph.loading.checks import (
    KeyTask,
    check_shares,
    count_in_shares,
    shares_of,
    whole_rules,
)
from omnigraph.loading.executors import task_batch
from omnigraph.model.types import Scalar, ValueType
from omnigraph.storage.written import TablePlace

TEXT = (ValueType(Scalar.STRING),)
NODES, EDGES = "node:Place", "edge:Trip"
PLAN = CheckPlan(
    (
        KeyRule(0, NODES, EntityIdentity(NODES, refuses_existing=True), Endpoint(NODES)),
        KeyRule(1, NODES, Unique(NODES, ("code",))),
    ),
    {
        NODES: (
            RuleColumns(0, KeyColumns("written", ("id",), TEXT, "Place.id")),
            RuleColumns(1, KeyColumns("written", ("code",), TEXT, "Place.code")),
        ),
        EDGES: (
            RuleColumns(0, KeyColumns("endpoint", ("src",), TEXT, "Trip.from")),
            RuleColumns(0, KeyColumns("endpoint", ("dst",), TEXT, "Trip.to")),
        ),
    },
    {},
)


def part(key: str, rows: int, **columns: list[str]) -> WrittenPart:
    fragment = json.dumps({"physical_rows": rows})
    return WrittenPart(
        key, TablePlace(""), fragment, buffered=pa.table(columns) if columns else None
    )


def job(*parts: WrittenPart, refused: str = "refused") -> CheckJob:
    return CheckJob(PLAN, parts, "minted", {}, {NODES: (refused,)})


@pytest.mark.parametrize("slots", [1, 2, 3, 16])
def test_all_work_is_shared_out_once(slots: int):
    trips = [part(EDGES, 700_000) for _ in range(5)]
    work = job(part(NODES, 1_000_000), *trips, part(NODES, 300_000))
    shares = shares_of(work, slots)
    assert len(shares) <= slots
    tasks = [task for share in shares for task in share]
    assert Counter(task.rule for task in tasks if not task.ends) == {0: 1, 1: 1}
    ends = Counter(end for task in tasks for end in task.ends)
    assert ends == {(number, claim): 1 for number in range(1, 6) for claim in (0, 1)}
    for share in shares:
        assert len(share) == len({(task.rule, bool(task.ends)) for task in share})
        assert [task.rule for task in share] == sorted(task.rule for task in share)


def test_who_counts_keys_looks_for_fewer_ends():
    plain = job(part(NODES, 1_000_000), *(part(EDGES, 500_000) for _ in range(8)))
    first, second = sorted(shares_of(plain, 2), key=len)
    looked = [sum(len(task.ends) for task in share) for share in (first, second)]
    assert looked[0] > looked[1] > 0


def test_little_work_is_one_share():
    (share,) = shares_of(job(part(NODES, 10), part(EDGES, 10), part(EDGES, 5)), 8)
    assert share == (KeyTask(0, ((1, 0), (1, 1), (2, 0), (2, 1))), KeyTask(0), KeyTask(1))


@pytest.mark.parametrize("width", [8, 0], ids=["one width", "several widths"])
def test_broken_keys_are_found_whatever_their_width(width: int):
    one, two, three, four, gone, odd = (
        text.rjust(width, "-") for text in ("p1", "p", "point", "pp", "refused", "none")
    )
    work = job(
        part(NODES, 2, id=[one, two], code=["a", "b"]),
        part(EDGES, 3, src=[one, three, gone], dst=[two, two, two]),
        part(NODES, 2, id=[two, four], code=["c", "a"]),
        part(EDGES, 2, src=[one, odd], dst=[three, four]),
        refused=gone,
    )
    known = pa.chunked_array([[one, two, two, four, gone]])
    assert (in_one_width(known) is not None) == bool(width)
    expected = {
        (0, two): {"written": 2},
        (1, "a"): {"written": 2},
        (0, three): {"endpoint": 2},
        (0, odd): {"endpoint": 1},
    }
    for shares in (whole_rules(work), shares_of(work, 1), shares_of(work, 4)):
        found: dict[tuple[int, str], Counter[str]] = {}
        for number in range(len(shares)):
            for batch in check_shares(work, shares)(task_batch(number)):
                for row in batch.to_pylist():
                    counts = found.setdefault((row.pop("rule"), row.pop("key")), Counter())
                    counts.update({role: count for role, count in row.items() if count})
        assert found == expected
        counted = sum(map(count_in_shares(work, shares), range(len(shares))))
        assert counted >= len(expected)


def test_texts_of_one_width_are_seen_as_bytes_without_a_copy():
    texts = pa.chunked_array([["ab", "cd"], [], ["ef", "ô", "gh"]], pa.string())
    wide = in_one_width(texts.slice(1))
    assert wide is not None and wide.type == pa.binary(2)
    assert [value.decode() for value in wide.to_pylist()] == ["cd", "ef", "ô", "gh"]
    last = texts.chunk(2).buffers()[2]
    assert wide.chunk(1).buffers()[1].address == last.address


def test_distinct_texts_are_known_as_such_only_if_none_is_there_twice():
    def said(*several: list[str]) -> bool:
        return are_distinct(pa.chunked_array([texts], pa.string()) for texts in several)

    numbers = [f"{number:019d}" for number in range(20_000)]
    assert said(numbers[:10_000], numbers[10_000:]) and said([]) and said(["a"], [], ["bc"])
    assert not said([*numbers, numbers[77]])
    assert not said(numbers[:10_000], numbers[9_999:])
    assert said(["a", "bc"]) and not said(["a", "bc"], ["bc"])


@pytest.mark.parametrize("texts", [[["ab", "c"]], [["ab"], ["c"]], [["ab", None]], [[""]], [[]]])
def test_other_texts_are_left_as_they_are(texts: list[list[str | None]]):
    assert in_one_width(pa.chunked_array(texts, pa.string())) is None
