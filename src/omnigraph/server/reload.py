"""Taking up changed files without a pause: the next generation is built aside, then swapped in."""

from __future__ import annotations

import asyncio
import logging

from omnigraph.errors import OmnigraphError
from omnigraph.server.app import App
from omnigraph.server.config import ServerConfig
from omnigraph.server.generation import build, fingerprint

log = logging.getLogger(__name__)


class Reloader:
    """Replaces the generation of an application, one replacement at a time."""

    def __init__(self, app: App, config: ServerConfig) -> None:
        self._app = app
        self._config = config
        self._busy = asyncio.Lock()

    async def reload(self) -> bool:
        """Build the next generation and serve it; False if it is no good and nothing changed."""
        async with self._busy:
            try:
                following = await asyncio.to_thread(build, self._config, self._app.generation)
            except (OmnigraphError, OSError) as problem:
                log.error(
                    "reload refused",
                    extra={
                        "fields": {
                            "generation": self._app.generation.number,
                            "reason": str(problem),
                        }
                    },
                )
                return False
            # The one step: requests that began before keep what they began with.
            self._app.generation = following
            log.info("reloaded", extra={"fields": {"generation": following.number}})
            return True

    async def watch(self, seconds: float, seen: str) -> None:
        """Reload whenever a file is not as it was ``seen``, looking every so often."""
        while True:
            await asyncio.sleep(seconds)
            found = await asyncio.to_thread(fingerprint, self._config)
            if found != seen:
                seen = found
                await self.reload()
