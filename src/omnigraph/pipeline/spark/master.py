"""Spark masters: whether an address can be one, and whether somebody answers there.

Spark itself finds out late: that a cluster is not there after a minute, in which it says nothing.
"""

from __future__ import annotations

import re
import socket

from omnigraph.errors import InputError, StorageError

ANSWER_SECONDS_MAX = 5.0
"""How long one machine of a cluster may take to answer."""

_LOCAL = re.compile(r"local(\[(\*|[1-9]\d*)(\s*,\s*\d+)?\])?")
_EXECUTORS_HERE = re.compile(r"local-cluster\[\s*\d+\s*,\s*\d+\s*,\s*\d+\s*\]")
_MACHINE = re.compile(r"(?P<host>\[[0-9a-fA-F:.%]+\]|[^\s:/@?#\[\]]+):(?P<port>\d{1,5})")
_CLUSTER = "spark://"


def require_master(master: str) -> None:
    """Refuse a master that cannot be one (`InputError`), or does not answer (`StorageError`).

    Those of YARN and Kubernetes are left to Spark, which has its own ways to find them.
    """
    if master.startswith("local"):
        if not (_LOCAL.fullmatch(master) or _EXECUTORS_HERE.fullmatch(master)):
            raise _malformed(master, "local[4] runs four tasks at a time, local[*] one a core")
    elif master.startswith(_CLUSTER):
        _require_answer(master)


def _require_answer(master: str) -> None:
    machines = master.removeprefix(_CLUSTER).split(",")
    reasons = [_silence(*_place(master, machine)) for machine in machines]
    if None not in reasons:
        raise StorageError(
            f"no Spark master answers at {master}: {reasons[0]}",
            hint="is it running, and is its port reachable from here?"
            " its own page shows the address it has",
        )


def _place(master: str, machine: str) -> tuple[str, int]:
    found = _MACHINE.fullmatch(machine)
    if found is None or not 0 < int(found["port"]) < 1 << 16:
        raise _malformed(master, "write it as spark://host:port, for example spark://master:7077")
    return found["host"].strip("[]"), int(found["port"])


def _silence(host: str, port: int) -> str | None:
    """Why nobody answers there, None if somebody does."""
    try:
        socket.create_connection((host, port), ANSWER_SECONDS_MAX).close()
    except (OSError, UnicodeError) as error:
        # A name that is no name of a machine fails before it is looked up.
        return (getattr(error, "strerror", None) or str(error)).lower()
    return None


def _malformed(master: str, hint: str) -> InputError:
    return InputError(f"'{master}' is not a Spark master", hint=hint)
