"""Flags that several commands share, so that they mean and read the same everywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

JsonFlag = Annotated[
    bool, typer.Option("--json", help="print the result as JSON, and errors as JSON too")
]
SchemaFile = Annotated[
    Path, typer.Option("--schema", metavar="FILE.pg", help="the schema to check against")
]
