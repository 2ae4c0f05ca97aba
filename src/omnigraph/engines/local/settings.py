"""The settings of the engine, read from the environment when it is made."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, cast, get_args

Mode = Literal["auto", "indexed", "csr"]

LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TraversalSettings:
    """How hops are served; every choice gives the same answers."""

    mode: Mode = "auto"
    """`indexed` looks edges up in storage, `csr` builds adjacency, `auto` takes the cheaper."""
    indexed_frontier_max: int = 1024
    """More nodes than this are never looked up one hop at a time, unless it is forced."""
    indexed_hops_max: int = 6

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> TraversalSettings:
        """The settings in force; a value that cannot be used is reported and the default kept."""
        mode = environment.get("OMNIGRAPH_TRAVERSAL_MODE", "").strip().lower() or "auto"
        if mode not in get_args(Mode):
            LOGGER.warning(
                "OMNIGRAPH_TRAVERSAL_MODE is %r; it can be %s", mode, ", ".join(get_args(Mode))
            )
            mode = "auto"
        return cls(
            cast(Mode, mode),
            _positive(environment, "OMNIGRAPH_EXPAND_INDEXED_MAX_FRONTIER", 1024),
            _positive(environment, "OMNIGRAPH_EXPAND_INDEXED_MAX_HOPS", 6),
        )


def _positive(environment: Mapping[str, str], name: str, default: int) -> int:
    text = environment.get(name, "").strip()
    if not text:
        return default
    if text.isdigit() and int(text) > 0:
        return int(text)
    LOGGER.warning("%s is %r; it must be a positive number. Using %d.", name, text, default)
    return default
