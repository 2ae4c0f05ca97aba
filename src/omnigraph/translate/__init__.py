"""Queries of another language as `.gq`: the reads of openCypher that both languages can say.

`queries.translate_cypher` is the one way in. This room knows texts, syntax trees and the catalog of
a schema; it opens no graph and runs nothing.
"""

from __future__ import annotations
