"""Random sequences of operations against a dictionary as judge."""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.effects.failures import FailureClass, StorageFailure
from omnigraph.effects.local_disk import Durability
from omnigraph.effects.objects import ObjectStore, Token, open_store
from omnigraph.effects.uri import Root

# Some names are prefixes of others, as text or as directories; some share a directory.
KEYS = ["a", "a/b", "a/b/c", "a/d", "ab", "ab/c", "b c/d", "b c/e/f"]
PREFIXES = ["", "a", "a/b", "ab", "b c", "b c/e", "absent"]

Verb = Literal[
    "write",
    "create",
    "remember",
    "swap",
    "read",
    "exists",
    "list",
    "delete",
    "delete_prefix",
    "rename",
]


class Step(NamedTuple):
    verb: Verb
    key: str
    other: str
    prefix: str
    data: bytes


steps = st.builds(
    Step,
    st.sampled_from(Verb.__args__),  # type: ignore[attr-defined]
    st.sampled_from(KEYS),
    st.sampled_from(KEYS),
    st.sampled_from(PREFIXES),
    st.sampled_from([b"", b"1", b"2", b"3" * 3000]),
)


class Model:
    """What a store must look like from outside."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.changes: dict[str, int] = {}
        self.remembered: dict[str, tuple[Token, bytes, int]] = {}

    def put(self, key: str, data: bytes) -> None:
        self.objects[key] = data
        self.changed(key)

    def drop(self, key: str) -> None:
        if self.objects.pop(key, None) is not None:
            self.changed(key)

    def changed(self, key: str) -> None:
        self.changes[key] = self.changes.get(key, 0) + 1

    def below(self, prefix: str) -> list[str]:
        return sorted(k for k in self.objects if not prefix or k.startswith(f"{prefix}/"))

    def has_room_for(self, key: str) -> bool:
        """Whether no object is in the way: a name is an object or a prefix, never both."""
        return not self.below(key) and not any(key.startswith(f"{k}/") for k in self.objects)


def run(store: ObjectStore, model: Model, step: Step) -> None:
    key, data = step.key, step.data
    match step.verb:
        case "write":
            if model.has_room_for(key):
                store.write(key, data)
                model.put(key, data)
        case "create":
            if model.has_room_for(key):
                assert store.write_if_absent(key, data) is (key not in model.objects)
                if key not in model.objects:
                    model.put(key, data)
        case "remember":
            found = store.read_versioned(key)
            assert (found[0] if found else None) == model.objects.get(key)
            if found:
                model.remembered[key] = (found[1], found[0], model.changes[key])
        case "swap":
            if key in model.remembered:
                token, seen, change = model.remembered[key]
                swapped = store.write_if_match(key, data, token) is not None
                if change == model.changes[key]:
                    assert swapped, "nothing happened since the token was read"
                elif seen != model.objects.get(key):
                    assert not swapped, "the object holds something else by now"
                if swapped:
                    model.put(key, data)
        case "read":
            assert store.read_if_exists(key) == model.objects.get(key)
        case "exists":
            assert store.exists(key) is (key in model.objects or bool(model.below(key)))
        case "list":
            assert store.list(step.prefix) == model.below(step.prefix)
        case "delete":
            store.delete(key)
            model.drop(key)
        case "delete_prefix":
            if step.prefix:
                store.delete_prefix(step.prefix)
                for name in model.below(step.prefix):
                    model.drop(name)
        case "rename":
            rename(store, model, key, step.other)


def rename(store: ObjectStore, model: Model, source: str, target: str) -> None:
    if source not in model.objects:
        with pytest.raises(StorageFailure) as caught:
            store.rename(source, target)
        assert caught.value.failure_class is FailureClass.NOT_FOUND
    elif source == target or model.has_room_for(target):
        store.rename(source, target)
        data = model.objects[source]
        if source != target:
            model.drop(source)
            model.put(target, data)


@contextmanager
def fresh_store(kind: str) -> Iterator[ObjectStore]:
    if kind == "memory":
        yield open_store(Root.parse(f"memory://{uuid.uuid4().hex}"))
    else:
        with tempfile.TemporaryDirectory() as folder:
            yield open_store(Root.parse(folder), Durability.PROCESS)


@pytest.mark.parametrize("kind", ["local", "memory"])
@given(sequence=st.lists(steps, max_size=30))
def test_any_sequence_of_operations_matches_a_dictionary(kind: str, sequence: list[Step]):
    model = Model()
    with fresh_store(kind) as store:
        for step in sequence:
            run(store, model, step)
        assert {name: store.read(name) for name in store.list()} == model.objects
