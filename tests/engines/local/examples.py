"""How many examples the property tests of the engine look at: the same ones in every run."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

EXAMPLES = settings(
    max_examples=25,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
FEW = settings(EXAMPLES, max_examples=8)
