"""Did-you-mean suggestions."""

import pytest

from omnigraph.syntax.suggest import did_you_mean, nearest_name


def test_nearest_name_forgives_typing_errors_and_case():
    known = ["Person", "Company", "knows"]
    assert nearest_name("Persom", known) == "Person"
    assert nearest_name("COMPANY", known) == "Company"
    assert nearest_name("konws", known) == "knows"


def test_nothing_close_means_no_suggestion():
    assert nearest_name("zebra", ["Person", "Company"]) is None
    assert nearest_name("x", []) is None
    assert did_you_mean("zebra", ["Person"]) is None


def test_names_that_differ_in_case_only_are_told_apart_deterministically():
    assert nearest_name("PERSON", ["person", "Person"]) == "Person"
    assert nearest_name("PERSON", ["Person", "person"]) == "Person"


@pytest.mark.timeout(60)
def test_a_very_long_word_is_compared_without_hanging():
    assert nearest_name("x" * 1_000_000, ["Person"] * 50) is None
