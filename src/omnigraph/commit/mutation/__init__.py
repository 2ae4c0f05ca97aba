"""Mutations: the statements of a write query, run in memory into one change set.

Nothing is written here, and nothing is checked that concerns the graph as a whole: `validation`
does that once, on the final change set. Statements see what earlier ones of the same query wrote.
"""

from omnigraph.commit.mutation.run import MutationOutcome, run_mutation
from omnigraph.commit.mutation.view import MutationView

__all__ = ["MutationOutcome", "MutationView", "run_mutation"]
