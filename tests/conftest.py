"""Settings for the whole suite."""

from __future__ import annotations

import os

# Tests kill processes, not machines: nothing here has to survive a loss of power, and flushing
# every file would be most of the suite's time. Tests of durability itself set it explicitly.
os.environ.setdefault("OMNIGRAPH_DURABILITY", "process")
