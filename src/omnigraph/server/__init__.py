"""The HTTP server: graphs behind tokens, policy and limits, in one process.

Every request takes one road, `app.App`: request id, preflight, token, graph, syntax, policy,
admission, and only then the engine, which runs in threads off the event loop. Handlers under
`routes` are thin: what a verb does is known to `Graph`, and what travels to `wire`. There is no web
framework: the order of the checks is the product here, and a framework would have its own.
"""

from __future__ import annotations
