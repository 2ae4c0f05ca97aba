"""The Lance kernel: the stored form of a graph, and the one way to change it.

Only this room (and the fragment writer of the pipeline) knows Lance. Its terms are datasets, refs
and versions; those of the rooms above are types, branches and commits.
"""

import os

# By default Lance leaves two cores to I/O and computes with the others: on a machine with few cores
# that is half of them or one. A variable set by the caller is kept.
os.environ.setdefault("LANCE_CPU_THREADS", str(os.cpu_count() or 1))
