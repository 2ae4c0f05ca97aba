"""Everything that is not a pure function: storage of text objects, locks, clock, ids, failpoints.

The room under the storage kernel. Whatever can differ between two runs on the same input passes
through here, so that tests can replace it and measurements can count it. It knows objects, files
and time; it knows nothing about graphs, tables or Lance.
"""
