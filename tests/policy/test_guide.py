"""The guide to policies: its table of actions is complete."""

from __future__ import annotations

import re
from pathlib import Path

from omnigraph.policy import Action
from omnigraph.policy.bundle import SCOPE_KEYS

PAGE = (Path(__file__).parents[2] / "docs" / "guide" / "policy.md").read_text(encoding="utf-8")


def test_table_has_every_action_with_its_scope():
    rows = re.findall(r"^\| `(\w+)` \|.*\| (?:`(\w+)`|–) \|$", PAGE, re.MULTILINE)
    scopes = {action: key for key, actions in SCOPE_KEYS.items() for action in actions}
    assert rows == [(action.value, scopes.get(action, "")) for action in Action]
