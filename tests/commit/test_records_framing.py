"""Finding records in bytes: lines, streams of values, and how inputs are cut into chunks."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.errors import InputError, LimitExceeded, NotFound
from omnigraph.loading.records import framing
from omnigraph.loading.records.framing import RecordSource, read_chunks
from omnigraph.loading.records.problems import Grammar, Problem
from omnigraph.loading.sources import FileSource, find_all, record_source


def decoded(
    source: RecordSource | bytes, grammar: Grammar = "strict", chunk_bytes: int = 1 << 20
) -> tuple[list[tuple[int, Any]], list[Problem]]:
    """Numbered values, and problems."""
    if isinstance(source, bytes):
        source = RecordSource.of(source)
    values: list[tuple[int, Any]] = []
    problems: list[Problem] = []
    for chunk in read_chunks(source, grammar, chunk_bytes=chunk_bytes):
        values += zip(chunk.numbers, chunk.values, strict=True)
        problems += chunk.problems
    return values, problems


# --- strict ---------------------------------------------------------------------------------------


def test_strict_input_has_one_object_per_line():
    assert decoded(b'{"a":1}\n{"a":2}\n') == ([(1, {"a": 1}), (2, {"a": 2})], [])


def test_the_last_line_needs_no_newline():
    assert decoded(b'{"a":1}\n{"a":2}') == ([(1, {"a": 1}), (2, {"a": 2})], [])


def test_blank_lines_and_carriage_returns_are_passed_over_but_counted():
    raw = b'\r\n{"a":1}\r\n  \t\r\n\n{"a":2} \r\n'
    assert decoded(raw) == ([(2, {"a": 1}), (5, {"a": 2})], [])


@pytest.mark.parametrize("raw", [b"", b"\n", b" \r\n\n"])
@pytest.mark.parametrize("grammar", ["strict", "compatible"])
def test_an_input_without_records_has_none(raw: bytes, grammar: Grammar):
    assert decoded(raw, grammar) == ([], [])


def test_a_bad_line_costs_only_itself():
    values, problems = decoded(b'{"a":1}\n{"a":\n\n{"a":3}\nnope\n')
    assert values == [(1, {"a": 1}), (4, {"a": 3})]
    assert [problem.place and problem.place.number for problem in problems] == [2, 5]
    assert [problem.kind for problem in problems] == ["invalid_json", "invalid_json"]
    assert "invalid strict JSON at line 2" in problems[0].message
    assert "invalid strict JSON at line 5: expecting value at column 1" in problems[1].message


def test_c_sch_038_a_duplicate_member_is_named_at_any_depth():
    _, problems = decoded(b'{"type":"T","data":{"a":[{"b":1,"b":2}]}}\n{"type":"T","type":"T"}\n')
    assert [problem.kind for problem in problems] == ["duplicate_member"] * 2
    assert problems[0].message == "duplicate JSON member 'b'"
    assert problems[1].text == "line 2: duplicate JSON member 'type'"


@pytest.mark.parametrize("text", ["NaN", '{"a":NaN}', '{"a":Infinity}', "// no", "# no", "/* */"])
@pytest.mark.parametrize("grammar", ["strict", "compatible"])
def test_words_and_comments_that_are_no_json_are_invalid(text: str, grammar: Grammar):
    _, (problem,) = decoded(b'{"a":1}\n' + text.encode() + b"\n", grammar)
    expected = (
        "invalid strict JSON at line 2" if grammar == "strict" else "invalid JSON at record 2"
    )
    assert expected in problem.message
    assert problem.hint


@pytest.mark.parametrize(
    ("raw", "hint"),
    [
        (b"\xef\xbb\xbf{}", "without a byte order mark"),
        (b'{"a":"\xe9"}', "save the file as UTF-8"),
        (b'{"a":1} {"a":2}', "on a line of its own"),
        (b'{\n"a":1}', "on a line of its own"),
        (b'{"a":1,}', "no trailing commas"),
    ],
)
def test_a_hint_fits_the_mistake(raw: bytes, hint: str):
    _, problems = decoded(raw)
    assert hint in str(problems[0].hint)


# --- compatible -----------------------------------------------------------------------------------


def test_c_sch_037_pretty_printed_records_are_read():
    records = [{"type": "T", "data": {"s": 'x } " { \\', "n": [1, {"m": {}}]}}, {"edge": "E"}]
    raw = "\n\n".join(json.dumps(record, indent=4) for record in records).encode()
    values, problems = decoded(raw, "compatible")
    assert values == list(enumerate(records, 1))
    assert not problems


def test_compatible_values_may_share_lines_and_need_no_space_between_objects():
    raw = b' {"a":1} {"a":2}\r\n{"a":\n3}{"a":4}[5]\n6 "s" null'
    values, _ = decoded(raw, "compatible")
    expected = [{"a": 1}, {"a": 2}, {"a": 3}, {"a": 4}, [5], 6, "s", None]
    assert [value for _, value in values] == expected


def test_the_last_of_repeated_members_wins_in_compatible_input():
    assert decoded(b'{"a":1,\n"a":2}', "compatible") == ([(1, {"a": 2})], [])


def test_after_a_bad_value_compatible_input_is_not_read_on():
    values, problems = decoded(b'{"a":1}\n{"a" 2}\n{"a":3}\n{"a" 4}', "compatible")
    assert values == [(1, {"a": 1})]
    (problem,) = problems
    assert problem.text == "record 2: invalid JSON at record 2: expecting ':' delimiter at column 6"


def test_a_mistake_on_a_later_line_of_a_record_is_found_there():
    _, (problem,) = decoded(b'{\n "a": 1,\n}', "compatible")
    assert problem.message.endswith("at line 3 column 1")


@pytest.mark.parametrize("raw", [b'{"a":1}\n{"b":', b'{"a":1}\n{"b":"x', b'{"a":1}\n"x', b"{}\n}"])
def test_a_value_without_an_end_is_invalid(raw: bytes):
    _, (problem,) = decoded(raw, "compatible")
    assert problem.message.startswith("invalid JSON at record 2")


# --- chunks ---------------------------------------------------------------------------------------

VALUES = st.recursive(
    st.none() | st.integers(-(2**70), 2**70) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)


@st.composite
def streams(draw: st.DrawFn) -> tuple[bytes, list[Any]]:
    """Records as someone may have written them, and what they are."""
    records = draw(st.lists(st.dictionaries(st.text(max_size=4), VALUES, max_size=4), max_size=6))
    indents = draw(st.lists(st.sampled_from([None, 0, 2]), min_size=6, max_size=6))
    gaps = draw(st.lists(st.sampled_from(["\n", " ", "\r\n\n", "\t"]), min_size=6, max_size=6))
    raw = "".join(
        json.dumps(record, indent=indent, ensure_ascii=False) + gap
        for record, indent, gap in zip(records, indents, gaps, strict=False)
    )
    return raw.encode(), records


def cut(raw: bytes, sizes: Iterable[int]) -> list[bytes]:
    blocks, start = [], 0
    for size in sizes:
        blocks.append(raw[start : start + size])
        start += size
    return [*blocks, raw[start:]]


@given(streams(), st.lists(st.integers(0, 20), max_size=10), st.integers(1, 50))
def test_compatible_records_do_not_depend_on_how_the_input_is_cut(
    stream: tuple[bytes, list[Any]], sizes: list[int], chunk_bytes: int
):
    raw, records = stream
    values, problems = decoded(RecordSource.stream(cut(raw, sizes)), "compatible", chunk_bytes)
    assert not problems
    assert values == list(enumerate(records, 1))


@given(
    st.lists(st.dictionaries(st.text(max_size=4), VALUES, max_size=3) | st.none(), max_size=8),
    st.lists(st.integers(0, 20), max_size=10),
    st.integers(1, 50),
)
def test_strict_records_do_not_depend_on_how_the_input_is_cut(
    records: list[Any], sizes: list[int], chunk_bytes: int
):
    raw = "\n".join("" if each is None else json.dumps(each) for each in records).encode()
    values, problems = decoded(RecordSource.stream(cut(raw, sizes)), "strict", chunk_bytes)
    assert not problems
    assert values == [(i, each) for i, each in enumerate(records, 1) if each is not None]


@pytest.mark.parametrize("grammar", ["strict", "compatible"])
def test_chunks_stay_small_however_large_the_input(grammar: Grammar):
    raw = b'{"type":"T","data":{}}\n' * 2_000
    chunks = list(read_chunks(RecordSource.of(raw), grammar, chunk_bytes=1_000))
    assert sum(len(chunk.values) for chunk in chunks) == 2_000
    assert max(len(chunk.values) for chunk in chunks) <= 100


@pytest.mark.parametrize("grammar", ["strict", "compatible"])
def test_a_record_may_be_longer_than_a_chunk(grammar: Grammar):
    long = {"text": "x" * 5_000, "list": list(range(500))}
    raw = json.dumps(long, indent=1 if grammar == "compatible" else None).encode() + b"\n{}\n"
    values, _ = decoded(raw, grammar, chunk_bytes=64)
    assert values == [(1, long), (2, {})]


@pytest.mark.parametrize("grammar", ["strict", "compatible"])
def test_a_record_without_end_is_not_read_into_memory(
    grammar: Grammar, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(framing, "RECORD_BYTES_MAX", 5_000)
    monkeypatch.setattr("omnigraph.loading.records.framing.RECORD_BYTES_MAX", 5_000)
    read = 0

    def endless() -> Iterable[bytes]:
        nonlocal read
        while True:
            read += 1
            yield b'{"a":[\n' if grammar == "compatible" else b'{"a":[ '

    with pytest.raises(LimitExceeded, match=r"one record in huge\.jsonl"):
        decoded(RecordSource.stream(endless(), "huge.jsonl"), grammar, chunk_bytes=100)
    assert read < 3_000


# --- files ----------------------------------------------------------------------------------------


def opened(path: Path) -> RecordSource:
    (found,) = find_all([FileSource(str(path))])
    return record_source(found)


@pytest.mark.parametrize("name", ["plain.jsonl", "packed.jsonl.gz", "packed.jsonl.zst"])
def test_files_are_read_plain_or_compressed(tmp_path: Path, name: str):
    path = tmp_path / name
    with pa.output_stream(str(path)) as out:
        out.write(b'{"a":1}\n{"a":2}\n')
    values, _ = decoded(opened(path))
    assert values == [(1, {"a": 1}), (2, {"a": 2})]


def test_problems_of_a_file_carry_its_name(tmp_path: Path):
    path = tmp_path / "people.jsonl"
    path.write_bytes(b"{}\nx\n")
    _, (problem,) = decoded(opened(path))
    assert problem.text.startswith(f"{path}:2: invalid strict JSON at line 2")
    assert problem.to_dict()["file"] == str(path)
    assert problem.to_dict()["line"] == 2


def test_a_truncated_file_is_named(tmp_path: Path):
    path = tmp_path / "cut.jsonl.gz"
    path.write_bytes(gzip.compress(b"".join(b'{"a":%d}\n' % i for i in range(10_000)))[:-500])
    with pytest.raises(InputError, match=r"cut\.jsonl\.gz cannot be read: Truncated"):
        decoded(opened(path))


def test_a_missing_file_is_named(tmp_path: Path):
    with pytest.raises(NotFound, match=r"no such file: .*absent\.jsonl"):
        decoded(opened(tmp_path / "absent.jsonl"))
