"""The Lance kernel: what a graph looks like at rest, and the one way it changes.

Only this room (and the fragment writer of the pipeline) knows Lance. Its terms are datasets, refs
and versions; those of the rooms above are types, branches and commits.
"""

import os

# Lance keeps two cores free for requests and computes with the others: on a machine with few cores,
# with half of them or with one. A variable that the caller has set is kept.
os.environ.setdefault("LANCE_CPU_THREADS", str(os.cpu_count() or 1))
