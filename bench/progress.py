"""What is going on, said on the side: results go to stdout, this goes to stderr."""

from __future__ import annotations

import sys


def note(text: str) -> None:
    """Say on the side what is going on."""
    print(text, file=sys.stderr, flush=True)
