"""The protocol of client and server: operations, requests, answers and errors.

Both sides use this room, so it depends neither on the web framework nor on the engine. `operations`
lists every operation with its path and shapes; the server binds a handler to each, the client calls
them, and the OpenAPI description is generated from the same table.
"""

from __future__ import annotations
