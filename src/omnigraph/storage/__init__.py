"""The Lance kernel: the stored form of a graph, and the one way to change it.

Only this room (and the fragment writer of the pipeline) knows Lance. Its terms are datasets, refs
and versions; those of the rooms above are types, branches and commits.
"""

import os
import sys
from typing import Any

import pyarrow as pa

# By default Lance leaves two cores to I/O and computes with the others: on a machine with few cores
# that is half of them or one. A variable set by the caller is kept.
os.environ.setdefault("LANCE_CPU_THREADS", str(os.cpu_count() or 1))


def _import_arrow_datasets() -> None:
    """Import `pyarrow.dataset`, as Lance does, without pandas.

    Arrow imports pandas, if it is installed, when it first converts a value, to know its kinds of
    values. While this module of Arrow is imported, that is the filter `True`; here it is made of
    bits instead. Nothing is kept from Arrow: it asks for pandas when the next value is converted.
    """
    if "pyarrow.dataset" in sys.modules or "pandas" in sys.modules:
        return
    convert = pa.lib.scalar
    true = pa.Array.from_buffers(pa.bool_(), 1, [None, pa.py_buffer(b"\1")])[0]

    def scalar(value: Any, *options: Any, **named: Any) -> Any:
        if value is True and not options and not named:
            return true
        return convert(value, *options, **named)

    pa.lib.scalar = scalar
    try:
        import pyarrow.dataset  # noqa: F401
    finally:
        pa.lib.scalar = convert


_import_arrow_datasets()
