"""Branches and history: create, delete, diff, merge, revert, export, the change feed."""
