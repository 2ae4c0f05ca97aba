"""Translates queries of another language to `.gq`: the reads of openCypher that `.gq` can express.

`queries.translate_cypher` is the only entry point. This package uses texts, syntax trees and the
catalog of a schema; it opens no graph and runs nothing.
"""

from __future__ import annotations
