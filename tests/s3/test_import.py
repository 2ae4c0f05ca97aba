"""A graph inferred from a table, in an object store: all of it, or nothing."""

from __future__ import annotations

import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph.commit.kernel import Kernel
from omnigraph.effects.uri import Root
from omnigraph.errors import AlreadyInitialized

PEOPLE = pa.table({"name": ["ada", "bo"], "Age": [36, 41]})


def objects(uri: str) -> list[str]:
    return Kernel.of(Root.parse(uri)).store.list()


def test_an_import_into_an_object_store_is_complete_or_leaves_nothing(
    uri: str, monkeypatch: pytest.MonkeyPatch
):
    inferred = og.infer_schema({"Person": PEOPLE})

    def interrupted(*given: object, **options: object) -> None:
        assert objects(uri)  # `init` has made the graph
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(og.Graph, "load", interrupted)
        inferred.create_graph(uri)
    assert objects(uri) == []
    _, receipt = inferred.create_graph(uri)
    assert receipt.to_dict()["inserted"] == 2
    kept = objects(uri)
    with pytest.raises(AlreadyInitialized):
        inferred.create_graph(uri)
    assert objects(uri) == kept
