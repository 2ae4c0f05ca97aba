"""How much a test tries: little in `make test`, much in `make test-long`.

`tests/conftest.py` registers a profile of Hypothesis for each; a property test without settings of
its own takes the number of examples from there. `FEW` is for tests whose examples each write a
history, `MANY` for those that compare two implementations of the same rules.
"""

from __future__ import annotations

from hypothesis import settings

IS_LONG = settings.get_current_profile_name() == "long"

FEW = settings(max_examples=settings().max_examples // 3)
MANY = settings(max_examples=settings().max_examples * 4)


def budget(small: int, long: int) -> int:
    """A size or a number of repetitions for the run that is under way."""
    return long if IS_LONG else small
