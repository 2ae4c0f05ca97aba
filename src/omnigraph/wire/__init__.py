"""What travels between a client and a server: requests, answers, errors and the operations.

Both sides build on this room, so it knows neither the web framework nor the engine. `operations`
lists every operation with its path and shapes; the server binds a handler to each, the client calls
them, and the OpenAPI description is written from the same table.
"""

from __future__ import annotations
