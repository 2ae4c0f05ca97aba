"""The regular expressions of `@check`: RE2, so that matching takes linear time.

RE2 comes with Arrow, which the validator uses to match whole columns. Arrow is imported only when a
schema really has a pattern: it takes longer to load than most schemas take to compile.
"""

from __future__ import annotations


def pattern_problem(pattern: str) -> str | None:
    """Why a pattern is not accepted, or ``None`` when it is."""
    import pyarrow as pa

    try:
        pattern_matches(pattern, "")
    except pa.ArrowInvalid as bad:
        return str(bad).removeprefix("Invalid regular expression: ")
    return None


def pattern_matches(pattern: str, text: str) -> bool:
    """Whether an accepted pattern matches anywhere in a text."""
    import pyarrow as pa
    import pyarrow.compute as pc

    return bool(pc.match_substring_regex(pa.scalar(text), pattern=pattern).as_py())
