"""Spark masters: what cannot be one is refused, and those of a cluster have to answer."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from omnigraph.errors import InputError, StorageError
from omnigraph.pipeline.spark.session import require_master


@pytest.fixture
def silent() -> Iterator[str]:
    """A place where nobody listens, and nobody else will."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{taken.getsockname()[1]}"


@pytest.mark.parametrize(
    "master",
    [
        *("local", "local[*]", "local[*,4]", "local[3, 2]", "local-cluster[2, 1, 1024]"),
        *("yarn", "k8s://https://host:6443"),
    ],
)
def test_masters_that_are_not_probed(master):
    require_master(master)


@pytest.mark.parametrize(
    "master",
    [
        *("local[x]", "local[]", "local[0]", "local[2", "locally", "local-cluster[2]"),
        *("spark://", "spark://host", "spark://host:x", "spark://host:0", "spark://host:99999"),
        *("spark://host:7077/path", "spark://a:1,", "spark://me@host:7077", "spark://::1:7077"),
    ],
)
def test_what_cannot_be_a_master_is_refused_with_an_example(master):
    with pytest.raises(InputError, match="is not a Spark master") as caught:
        require_master(master)
    assert master in caught.value.message
    assert caught.value.hint


def test_a_cluster_has_to_answer_with_one_of_its_masters(silent):
    with pytest.raises(StorageError, match=f"no Spark master answers at spark://{silent}: "):
        require_master(f"spark://{silent}")
    with pytest.raises(StorageError, match=f"spark://{silent},{silent}: "):
        require_master(f"spark://{silent},{silent}")
    with socket.create_server(("127.0.0.1", 0)) as listening:
        require_master(f"spark://{silent},127.0.0.1:{listening.getsockname()[1]}")


def test_a_name_that_no_machine_has_is_a_master_that_does_not_answer():
    for name in ("nowhere.invalid", "a..b"):
        with pytest.raises(StorageError, match="no Spark master answers at"):
            require_master(f"spark://{name}:7077")
