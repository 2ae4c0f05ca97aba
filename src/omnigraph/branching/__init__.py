"""Branches and history: create, delete, diff, merge, revert, export; later the change feed."""
