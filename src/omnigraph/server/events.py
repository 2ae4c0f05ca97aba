"""What happens with every request, one line an event.

These lines are written directly: with the standard logging library they would cost more than a
small query does. Everything rare goes through it as usual, see `logs`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import orjson

from omnigraph.server.config import LogFormat

Sink = Callable[[str], object]


class EventLog:
    """Writes events to a sink, or nowhere."""

    def __init__(self, sink: Sink | None = None, format: LogFormat = "text") -> None:
        self._sink = sink
        self._line = json_line if format == "json" else text_line

    def write(self, event: str, fields: Mapping[str, Any]) -> None:
        """Write one event; fields without a value are left out."""
        if self._sink is not None:
            self._sink(self._line(time.time(), "info", event, fields) + "\n")


def text_line(moment: float, level: str, event: str, fields: Mapping[str, Any]) -> str:
    """Time, level, event, then the facts as `name=value`."""
    facts = [f" {name}={_shown(value)}" for name, value in fields.items() if value is not None]
    return f"{_written(moment)} {level} {event}{''.join(facts)}"


def json_line(moment: float, level: str, event: str, fields: Mapping[str, Any]) -> str:
    """One JSON object."""
    facts = {name: value for name, value in fields.items() if value is not None}
    document = {"time": _written(moment), "level": level, "event": event, **facts}
    return orjson.dumps(document, default=str).decode()


def _written(moment: float) -> str:
    whole = int(moment)
    return f"{_second(whole)}.{int((moment - whole) * 1000):03d}Z"


@lru_cache(maxsize=2)
def _second(whole: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(whole))


def _shown(value: object) -> str:
    return _shown_text(value) if isinstance(value, str) else str(value)


@lru_cache(maxsize=1024)
def _shown_text(value: str) -> str:
    # A name that a caller chose must not be able to start a line of its own.
    is_plain = value and value.isprintable() and " " not in value and '"' not in value
    return value if is_plain else orjson.dumps(value).decode()
