"""A second, naive reading of the query language, for engines to be held against.

It runs a plan over plain Python rows, one solution at a time, with nested loops: nothing is pushed
down, indexed, vectorised or cached. It is as slow as it looks and meant for graphs one can draw on
paper. It shares the plan and the value model with the engines, and no code that computes anything.

Rows are dictionaries of values in the form of `model.values`, by table key: a node has its `id`
and its properties, an edge also `src` and `dst`.
"""

from tests.support.reference.run import Reference, Tables
from tests.support.reference.solutions import Answer

__all__ = ["Answer", "Reference", "Tables"]
