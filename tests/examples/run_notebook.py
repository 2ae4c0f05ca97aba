"""Run a notebook in a process of its own, from its own folder, and write it with its outputs.

python -m tests.examples.run_notebook NOTEBOOK OUT
"""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import nbformat
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient

CELL_SECONDS_MAX = 240


def run(path: Path, out: Path) -> None:
    """Run every cell of a notebook; raises what the first failing one raised."""
    notebook = nbformat.read(path, as_version=4)
    with TemporaryDirectory(prefix="og") as folder:
        # Files, not ports: nothing else on the machine can talk to the kernel.
        kernel = AsyncKernelManager(kernel_name="python3", transport="ipc", ip=f"{folder}/kernel")
        place = {"metadata": {"path": str(path.parent)}}
        NotebookClient(notebook, km=kernel, timeout=CELL_SECONDS_MAX, resources=place).execute()
    nbformat.write(notebook, out)


if __name__ == "__main__":
    run(*map(Path, sys.argv[1:]))
