"""How many examples the property tests of the engine look at."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

from tests.support.budgets import FEW as FEW_EXAMPLES

# A graph that a test of one example would change is only read here.
_calm = [*settings().suppress_health_check, HealthCheck.function_scoped_fixture]
EXAMPLES = settings(suppress_health_check=_calm)
FEW = settings(FEW_EXAMPLES, suppress_health_check=_calm)
