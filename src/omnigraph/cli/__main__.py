"""`python -m omnigraph.cli`, for when the script is not on the path."""

from __future__ import annotations

import sys

from omnigraph.cli.main import main

if __name__ == "__main__":
    code = main()
    # If an interrupt arrives inside code run by `exec()`, as libraries use it during import,
    # `python -m` exits with SIGINT whatever exit code we return. Another `exec()` resets that
    # state.
    exec("")  # noqa: S102
    sys.exit(code)
