"""A graph as tools for language models: the Model Context Protocol, over stdin and stdout.

`toolbox` decides which tools there are and what each does; only `stdio` knows the protocol. Nothing
is written unless the operator named branches for it.
"""

from __future__ import annotations
