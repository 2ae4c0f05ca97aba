"""What the Makefile relies on: tests of one group run in one process."""

from __future__ import annotations

import pytest


@pytest.mark.xdist_group("one-process")
def test_tests_of_one_group_run_in_one_process(request: pytest.FixtureRequest) -> None:
    """pytest-xdist sends tests by the part of their id after ``@``, which pytest 9.2 drops."""
    if not request.config.getoption("loadgroup", default=False):
        pytest.skip("only pytest-xdist with --dist loadgroup keeps groups")
    assert request.node.nodeid.endswith("@one-process"), "every worker would start Spark"


@pytest.fixture(scope="module")
def shared() -> object:
    return object()


def test_tests_that_share_a_fixture_of_their_file_are_a_group(
    shared: object, request: pytest.FixtureRequest
) -> None:
    group = request.node.get_closest_marker("xdist_group")
    assert group is not None and group.args == ("tests_packaging_test_groups_py",)
    if request.config.getoption("loadgroup", default=False):
        assert request.node.nodeid.endswith("@tests_packaging_test_groups_py")
