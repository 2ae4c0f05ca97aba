"""The list of owners that reviews are asked by."""

from __future__ import annotations

import tomllib


def code_owners(roles: str) -> str:
    """The file of owners, from the file that says who has which role."""
    known = tomllib.loads(roles)
    lines = ["# Written by `make docs` from .github/owners.toml: edit there."]
    for entry in known["owns"]:
        owners = " ".join(known["roles"][entry["role"]])
        lines += [f"{path if path == '*' else '/' + path} {owners}" for path in entry["paths"]]
    return "\n".join(lines) + "\n"
