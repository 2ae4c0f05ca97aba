"""Answers to writes, by the caller's key: a write that is asked again is not done again.

The engine keeps the key with the commit, or with the change of branches, so it outlives this
process. Here a repetition waits for the first request while that runs, and answers that the engine
cannot give again are kept: the stages of a load, and a write that changed nothing.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable

from starlette.responses import Response

from omnigraph.errors import Conflict
from omnigraph.server.call import Call
from omnigraph.wire.requests import JSON, REPLAYED

ANSWERS_KEPT_MAX = 4096
ANSWER_BYTES_MAX = 64 * 1024
"""Answers of more bytes are not kept: only a load of very many types has one."""

Key = tuple[str, str | None, str]


class Repeats:
    """The writes of a process that have a key. Used on the event loop only."""

    def __init__(self) -> None:
        self._running: dict[Key, tuple[str, asyncio.Future[None]]] = {}
        self._answers: OrderedDict[Key, tuple[str, bytes]] = OrderedDict()

    async def once(self, call: Call, run: Callable[[], Awaitable[Response]]) -> Response:
        """The answer to a write; of one that was answered before, or is under way, that answer.

        Raises `Conflict` for a key that stands for another request. A failure is not kept.
        """
        assert call.key is not None
        key = (call.values["graph_id"], call.actor, call.key)
        asked = await _digest(call)
        while (running := self._running.get(key)) is not None:
            _require_same(running[0], asked, call.key)
            await asyncio.shield(running[1])
        if (kept := self._answers.get(key)) is not None:
            _require_same(kept[0], asked, call.key)
            self._answers.move_to_end(key)
            return Response(kept[1], headers={REPLAYED: "true"}, media_type=JSON)
        ended = asyncio.get_running_loop().create_future()
        self._running[key] = asked, ended
        try:
            response = await run()
            if call.has_written and len(response.body) <= ANSWER_BYTES_MAX:
                self._answers[key] = asked, bytes(response.body)
                if len(self._answers) > ANSWERS_KEPT_MAX:
                    self._answers.popitem(last=False)
            return response
        finally:
            del self._running[key]
            ended.set_result(None)


async def _digest(call: Call) -> str:
    """What the request asks for. Records of a load are left out: policy decides before them."""
    scope = call.request.scope
    digest = hashlib.sha256(call.operation.id.encode() + b"\0" + scope["raw_path"])
    digest.update(b"\0" + scope["query_string"] + b"\0")
    if call.operation.body is not None:
        digest.update(await call.body())
    return digest.hexdigest()


def _require_same(known: str, asked: str, key: str) -> None:
    if known != asked:
        raise Conflict(
            f"the idempotency key '{key}' was already used for another request",
            hint="use a new key for each write",
        )
