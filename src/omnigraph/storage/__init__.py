"""The Lance kernel: what a graph looks like at rest, and the one way it changes.

Only this room (and the fragment writer of the pipeline) knows Lance. It speaks of datasets, refs
and versions; rooms above speak of types, branches and commits.
"""
