"""A graph as tools for language models, by the Model Context Protocol over stdin and stdout.

`toolbox` defines the tools; only `stdio` implements the protocol. Writes are only possible to
branches that the operator names.
"""

from __future__ import annotations
