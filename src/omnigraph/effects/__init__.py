"""Every source of nondeterminism: object stores, locks, clock, ids, environment, failpoints.

The room below the storage kernel. Tests replace these parts and measurements count their requests.
It knows objects, files and time; it knows nothing about graphs, tables or Lance.
"""
