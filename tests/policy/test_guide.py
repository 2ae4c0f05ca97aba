"""The guide to policies: its Python example runs, and its table of actions is complete."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from omnigraph.policy import Action
from omnigraph.policy.actions import SCOPE_KEYS

PAGE = (Path(__file__).parents[2] / "docs" / "guide" / "policy.md").read_text(encoding="utf-8")


def test_python_example_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    (bundle, _) = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    (tmp_path / "policy.yaml").write_text(bundle, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    (text,) = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    exec(compile(text, "policy.md", "exec"), {})
    refused, answered = capsys.readouterr().out.splitlines()
    assert refused.startswith("no rule lets actor `act-bo` do `branch_merge` from branch `review`")
    assert answered == "False no rule lets actor `act-bo` do `change` on branch `main`"


def test_table_has_every_action_with_its_scope():
    rows = re.findall(r"^\| `(\w+)` \|.*\| (?:`(\w+)`|–) \|$", PAGE, re.MULTILINE)
    scopes = {action: key for key, actions in SCOPE_KEYS.items() for action in actions}
    assert rows == [(action.value, scopes.get(action, "")) for action in Action]
