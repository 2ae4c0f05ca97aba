"""The Lance kernel: what a graph looks like at rest, and the one way it changes.

Only this room (and the fragment writer of the pipeline) knows Lance. It speaks of datasets, refs
and versions; rooms above speak of types, branches and commits.
"""

import os

# Lance keeps two cores free for requests and computes with the others: on a machine with few cores,
# with half of them or with one. A caller's own choice stands.
os.environ.setdefault("LANCE_CPU_THREADS", str(os.cpu_count() or 1))
