"""The object contract, run on every backend: a directory, memory and a real S3 API (C-STO-041)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from omnigraph.effects.failures import FailureClass, StorageFailure
from omnigraph.effects.objects import ObjectStore, Token, open_store
from omnigraph.effects.requests import measure
from omnigraph.effects.uri import Root
from omnigraph.errors import InputError
from tests.effects import contenders

ODD_NAMES = [
    "plain.json",
    "with space.json",
    "percent%20sign.json",
    "plus+and&and=.json",
    "ünïcode-数.json",
    "hash#and?question.json",
    "quote'\"back\\slash.json",
    "dots..in...name",
    "a/b/c/d/deep.json",
    "__recovery/01J00000000000000000000000.json",
    "_schema.pg.staging",
    "~tilde*star[bracket].json",
]


def test_write_then_read_returns_the_bytes(store: ObjectStore):
    for data in (b"", b"text", bytes(range(256)) * 100):
        store.write("dir/object", data)
        assert store.read("dir/object") == data
        assert store.read_if_exists("dir/object") == data


def test_write_replaces(store: ObjectStore):
    store.write("object", b"a much longer first content")
    store.write("object", b"second")
    assert store.read("object") == b"second"


def test_reading_an_absent_object(store: ObjectStore):
    assert store.read_if_exists("absent") is None
    assert store.read_if_exists("absent/below") is None
    assert store.read_versioned("absent") is None
    with pytest.raises(StorageFailure) as caught:
        store.read("absent")
    assert caught.value.failure_class is FailureClass.NOT_FOUND
    assert caught.value.details["operation"] == "read"
    assert caught.value.details["object"] == store.root.join("absent")


def test_a_prefix_is_not_an_object(store: ObjectStore):
    store.write("dir/object", b"x")
    assert store.read_if_exists("dir") is None
    assert store.read_versioned("dir") is None
    store.delete("dir")
    assert store.read("dir/object") == b"x"


def test_another_handle_sees_an_acknowledged_write(store: ObjectStore):
    store.write("object", b"x")
    other = open_store(Root.parse(store.root.uri))
    assert other.read("object") == b"x"
    assert other.list() == ["object"]


# --- creating and swapping ------------------------------------------------------------------------


def test_write_if_absent_creates_once(store: ObjectStore):
    assert store.write_if_absent("dir/claim", b"first") is True
    assert store.write_if_absent("dir/claim", b"second") is False
    assert store.read("dir/claim") == b"first"
    store.delete("dir/claim")
    assert store.write_if_absent("dir/claim", b"third") is True


def test_write_if_match_replaces_what_was_read(store: ObjectStore):
    store.write("record", b"1")
    data, token = store.read_versioned("record") or (b"", Token(""))
    assert data == b"1"
    second = store.write_if_match("record", b"2", token)
    assert second is not None
    third = store.write_if_match("record", b"3", second)  # the returned token is the new one
    assert third is not None
    assert store.read_versioned("record") == (b"3", third)


def test_write_if_match_with_an_old_token_changes_nothing(store: ObjectStore):
    store.write("record", b"1")
    _, token = store.read_versioned("record") or (b"", Token(""))
    store.write("record", b"2")
    assert store.write_if_match("record", b"3", token) is None
    assert store.read("record") == b"2"


def test_write_if_match_of_a_deleted_object_does_not_bring_it_back(store: ObjectStore):
    store.write("dir/record", b"1")
    _, token = store.read_versioned("dir/record") or (b"", Token(""))
    store.delete("dir/record")
    assert store.write_if_match("dir/record", b"2", token) is None
    assert store.read_if_exists("dir/record") is None
    store.delete_prefix("dir")
    assert store.write_if_match("dir/record", b"2", token) is None
    assert store.exists("dir") is False


def test_equal_content_has_an_equal_token(store: ObjectStore):
    """An observer decides that a record did not change by comparing tokens."""
    store.write("record", b"1")
    assert store.read_versioned("record") == store.read_versioned("record")


# --- looking around -------------------------------------------------------------------------------


def test_c_sto_038_exists_means_an_object_or_a_non_empty_prefix(store: ObjectStore):
    assert store.exists("dir") is False
    store.write("dir/sub/object", b"x")
    assert store.exists("dir/sub/object") is True
    assert store.exists("dir/sub") is True
    assert store.exists("dir") is True
    assert store.exists("di") is False
    assert store.exists("dir/sub/object/below") is False
    store.delete("dir/sub/object")
    assert store.exists("dir/sub") is False
    assert store.exists("dir") is False


@pytest.mark.parametrize("name", ODD_NAMES)
def test_c_sto_039_listed_names_round_trip(store: ObjectStore, name: str):
    store.write(name, name.encode())
    assert store.list() == [name]
    assert store.read(store.list()[0]) == name.encode()
    assert store.exists(name)


def test_c_sto_039_list_is_recursive_sorted_and_stays_inside_its_prefix(store: ObjectStore):
    names = ["a", "ab/x", "b/c/y", "b/x", "b/z", "bc/x", "b-c/x", "b c/x"]
    for name in names:
        store.write(name, b"")
    assert store.list() == sorted(names)
    assert store.list("b") == ["b/c/y", "b/x", "b/z"]
    assert store.list("b/") == ["b/c/y", "b/x", "b/z"]
    assert store.list("b/c") == ["b/c/y"]
    assert store.list("a") == []  # an object is not below itself, and `ab` is a sibling
    assert store.list("absent") == []


# --- removing and moving --------------------------------------------------------------------------


def test_c_sto_040_deletes_are_idempotent(store: ObjectStore):
    store.write("dir/a", b"1")
    store.write("dir/b", b"1")
    for _ in range(2):
        store.delete("dir/a")
        assert store.list() == ["dir/b"]
    for _ in range(2):
        store.delete_prefix("dir")
        assert store.list() == []
    store.delete("never/was/there")
    store.delete_prefix("never/was")


def test_c_sto_040_delete_prefix_spares_siblings_and_the_object_of_the_same_name(
    store: ObjectStore,
):
    for name in ["b/x", "b/c/y", "bc/x", "b.json"]:
        store.write(name, b"1")
    store.delete_prefix("b/")
    assert store.list() == ["b.json", "bc/x"]
    store.delete_prefix("b.json")
    assert store.list() == ["b.json", "bc/x"]


def test_delete_prefix_refuses_the_whole_root(store: ObjectStore):
    store.write("a", b"1")
    with pytest.raises(InputError):
        store.delete_prefix("")
    assert store.list() == ["a"]


def test_rename_creates_parents_and_replaces(store: ObjectStore):
    store.write("old", b"1")
    store.rename("old", "new/deep/name")
    assert store.list() == ["new/deep/name"]
    store.write("other", b"2")
    store.rename("other", "new/deep/name")
    assert store.list() == ["new/deep/name"]
    assert store.read("new/deep/name") == b"2"
    store.rename("new/deep/name", "new/deep/beside")
    assert store.list() == ["new/deep/beside"]


def test_copy_creates_parents_replaces_and_keeps_the_original(store: ObjectStore):
    large = bytes(range(256)) * 10_000
    store.write("old", large)
    store.copy("old", "new/deep/name")
    assert store.list() == ["new/deep/name", "old"]
    assert store.read("new/deep/name") == large
    store.write("other", b"2")
    store.copy("other", "new/deep/name")
    assert store.read("new/deep/name") == b"2"
    assert store.list() == ["new/deep/name", "old", "other"]
    store.delete("other")
    assert store.read("new/deep/name") == b"2"


def test_a_large_object_is_written_and_read_in_parts(store: ObjectStore):
    parts = [bytes([number]) * 700_000 for number in range(20)]
    store.write_chunks("a/large", iter(parts))
    assert b"".join(store.chunks("a/large")) == b"".join(parts)
    found = store.attributes("a/large")
    assert found is not None
    assert found.size == 14_000_000
    assert (found.tag is None) == store.root.is_local
    assert store.sizes("a") == {"a/large": 14_000_000}
    assert store.attributes("a/absent") is None
    with pytest.raises(StorageFailure):
        list(store.chunks("a/absent"))


def test_parts_that_fail_leave_the_object_as_it_was(store: ObjectStore):
    store.write("a", b"before")

    def failing() -> Iterator[bytes]:
        yield b"x" * 100
        raise ValueError("no more")

    with pytest.raises(ValueError, match="no more"):
        store.write_chunks("a", failing())
    assert store.read("a") == b"before"
    assert store.list() == ["a"]


def test_copy_of_an_absent_object_is_reported(store: ObjectStore):
    store.write("dir/x", b"1")
    for source in ("absent", "dir"):
        with pytest.raises(StorageFailure) as caught:
            store.copy(source, "new")
        assert caught.value.failure_class is FailureClass.NOT_FOUND
    assert store.list() == ["dir/x"]


def test_rename_onto_itself_keeps_the_object(store: ObjectStore):
    store.write("a", b"1")
    store.rename("a", "a")
    assert store.read("a") == b"1"


def test_rename_of_an_absent_object_is_reported(store: ObjectStore):
    store.write("dir/x", b"1")
    for source, target in [("absent", "new"), ("absent", "absent"), ("dir", "new")]:
        with pytest.raises(StorageFailure) as caught:
            store.rename(source, target)
        assert caught.value.failure_class is FailureClass.NOT_FOUND
    assert store.list() == ["dir/x"]


def test_a_name_is_free_again_when_all_below_it_is_gone(store: ObjectStore):
    store.write("a/b/c", b"1")
    store.delete("a/b/c")
    store.write("a", b"2")
    assert store.read("a") == b"2"
    store.delete("a")
    store.write("a/b", b"3")
    store.delete("a/b")
    assert store.write_if_absent("a", b"4") is True
    store.delete("a")
    store.write("a/b", b"5")
    store.rename("a/b", "x")
    store.rename("x", "a")
    assert store.read("a") == b"5"


def test_probe_passes_and_leaves_nothing(store: ObjectStore):
    store.probe_atomic_create()
    assert store.list() == []
    store.write("a", b"1")
    store.probe_atomic_create()
    assert store.list() == ["a"]


# --- names ----------------------------------------------------------------------------------------

BAD_KEYS = [
    *("", "/", "/absolute", "../outside", "a/../b", "a/..", "./a", "a/.", "a//b", "a/"),
    *("a\0b", "a\nb", ".omnigraph-tmp-1", "a/.omnigraph-lock-1/b"),
]


@pytest.mark.parametrize("key", BAD_KEYS)
def test_unsafe_names_are_refused_by_every_operation(store: ObjectStore, key: str):
    operations = [
        lambda: store.read(key),
        lambda: store.read_if_exists(key),
        lambda: store.read_versioned(key),
        lambda: store.write(key, b""),
        lambda: store.write_if_absent(key, b""),
        lambda: store.write_if_match(key, b"", Token("t")),
        lambda: store.exists(key),
        lambda: store.delete(key),
        lambda: store.rename(key, "b"),
        lambda: store.rename("b", key),
        *([lambda: store.list(key)] if key not in ("", "a/") else []),
        *([lambda: store.delete_prefix(key)] if key != "a/" else []),
    ]
    for operation in operations:
        with pytest.raises(InputError):
            operation()


# --- races ----------------------------------------------------------------------------------------


def test_c_sto_035_a_reader_never_sees_a_partial_object(store: ObjectStore):
    store.write("object", contenders.whole(0))
    contenders.contend(contenders.replace_or_read, store.root.uri, 1 + contenders.READERS)


def test_c_sto_036_of_many_claimants_exactly_one_wins(store: ObjectStore):
    won = contenders.contend(contenders.claim, store.root.uri, 4)
    for turn in range(contenders.ROUNDS):
        (winner,) = [number for number, wins in enumerate(won) if wins[turn]]
        assert store.read(f"claims/{turn}") == contenders.content(winner)
    assert len(store.list()) == contenders.ROUNDS


def test_c_sto_037_of_two_with_one_token_one_wins_and_the_other_is_told(store: ObjectStore):
    store.write("record", b"")
    won = contenders.contend(contenders.swap_once, store.root.uri, 2)
    assert [sum(turn) for turn in zip(*won, strict=True)] == [1] * contenders.ROUNDS
    winners = [turn.index(True) for turn in zip(*won, strict=True)]
    assert store.read("record") == b"".join(b"%d," % number for number in winners)


def test_c_sto_037_a_counter_loses_no_increment(store: ObjectStore):
    remote = store.root.scheme == "s3"
    store.write("counter", b"0")
    up, times = (contenders.count_up_5, 5) if remote else (contenders.count_up_25, 25)
    contenders.contend(up, store.root.uri, 4)
    assert int(store.read("counter")) == 4 * times


def test_writers_survive_the_removal_of_their_directory(store: ObjectStore):
    contenders.contend(contenders.churn, store.root.uri, 3)
    left = store.list()
    assert set(left) <= {"work/1/object", "work/2/object"}
    assert all(store.read(name).isdigit() for name in left)


# --- costs ----------------------------------------------------------------------------------------


def test_every_operation_is_counted(store: ObjectStore):
    with measure() as io:
        store.write("a", b"1")
        store.read("a")
        store.read_if_exists("b")
        _, token = store.read_versioned("a") or (b"", Token(""))
        store.write_if_match("a", b"2", token)
        store.write_if_absent("b", b"1")
        store.exists("a")
        store.list()
        store.delete("a")
    report = io.report()
    assert {verb: n for (kind, verb), n in report.counts.items() if kind == "object"} == {
        "write": 1,
        "read": 3,
        "swap": 1,
        "create": 1,
        "exists": 1,
        "list": 1,
        "delete": 1,
    }
    assert report.requests == report.round_trips == 9


def test_c_sto_041_this_suite_runs_on_a_directory_memory_and_s3(request: pytest.FixtureRequest):
    here = [item for item in request.session.items if item.path == request.path]
    backends = {item.callspec.params["root"] for item in here if hasattr(item, "callspec")}
    assert {"local", "memory", "s3"} <= backends or len(here) == 1
