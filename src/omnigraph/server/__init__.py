"""The HTTP server: graphs behind tokens, policy and limits, in one process.

A Starlette application (`app.App`) passes every request through the same checks: request id,
preflight, token, graph, syntax, policy, admission, and only then the engine, which runs in threads
off the event loop. Handlers under `routes` are thin: `Graph` implements the verbs, and `wire`
defines requests and answers.
"""

from __future__ import annotations
