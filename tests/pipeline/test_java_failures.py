"""The line that says why, out of what Java prints."""

from __future__ import annotations

import pytest

from omnigraph.pipeline.spark.java import reason_of

THROWN = """\
An error occurred while calling None.org.apache.spark.api.java.JavaSparkContext.
: org.apache.spark.SparkException: Could not parse it
and more
\tat org.apache.spark.Some$Class.method(Some.scala:1)
\t... 3 more
"""


@pytest.mark.parametrize(
    ("printed", "reason"),
    [
        (THROWN, "Could not parse it"),
        (f"{THROWN}Caused by: java.io.IOException: no room\n\tat a.b.C.d(E.java:1)\n", "no room"),
        ("java.lang.NullPointerException\n\tat a.B.c(D.java)", "java.lang.NullPointerException"),
        ("Invalid heap: -Xmxabc\nError: no JVM.\n", "Invalid heap: -Xmxabc Error: no JVM."),
        ("\tat a.B.c(D.java)\n", ""),
        ("", ""),
    ],
)
def test_the_innermost_failure_says_why_and_frames_are_left_out(printed, reason):
    assert reason_of(printed) == reason


def test_why_a_cluster_gave_up_is_in_the_log():
    stopped = ": java.lang.IllegalStateException: Cannot call methods on a stopped SparkContext.\n"
    log = "10:59:03 ERROR Backend: Application has been killed. Reason: All masters are silent.\n"
    assert reason_of(stopped, log) == "All masters are silent."
    assert reason_of(stopped, "nothing") == "Cannot call methods on a stopped SparkContext."
    assert reason_of(THROWN, log) == "Could not parse it", "that was another session"


def test_of_a_long_text_without_a_failure_the_last_lines_are_told():
    assert reason_of("\n".join(map(str, range(100)))) == "95 96 97 98 99"
