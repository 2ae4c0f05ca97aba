"""Measurements that need a process of their own: a verb by name, JSON in and out."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from bench.circumstances import ROOT

Verbs: TypeAlias = Mapping[str, Callable[..., dict[str, Any]]]


def ask(
    module: str, verb: str, environment: Mapping[str, str] | None = None, **arguments: Any
) -> dict[str, Any]:
    """What a verb of a module answers in a fresh process."""
    done = subprocess.run(
        [sys.executable, "-m", module, verb],
        input=json.dumps(arguments),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        cwd=ROOT,
        env={**os.environ, **(environment or {})},
    )
    # Libraries may have printed something before.
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def answer(verbs: Verbs) -> None:
    """Be the process that is asked."""
    print(json.dumps(verbs[sys.argv[1]](**json.load(sys.stdin))))
