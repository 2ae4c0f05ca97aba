"""Branches and history: create, delete, export; later merge, diff and the change feed."""
