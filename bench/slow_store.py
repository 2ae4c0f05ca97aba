"""An object store that is not on loopback: the S3 API of the tests, some milliseconds away.

What delays requests is a process of its own, so that it takes no turns of the one that is measured.
"""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from tests.effects import s3_server
from tests.support.hostile_store import hostile_store

BUCKET = "graphs"


@contextmanager
def slow_store(delay_ms: float) -> Iterator[str]:
    """Start it, and reach it from here; gives a prefix below which graphs may be made."""
    with s3_server.running_s3() as upstream:
        s3_server.create_bucket(upstream, BUCKET)
        proxy = subprocess.Popen(
            [sys.executable, "-m", "bench.slow_store", upstream, str(delay_ms)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert proxy.stdin is not None
        assert proxy.stdout is not None
        variables = s3_server.environment(proxy.stdout.readline().strip())
        try:
            with patch.dict(os.environ, variables):
                yield f"s3://{BUCKET}/{uuid.uuid4().hex}"
        finally:
            proxy.stdin.close()
            proxy.wait(timeout=30)
            proxy.stdout.close()


def main(upstream: str, delay_ms: float) -> None:
    """Delay requests until the standard input ends."""
    with hostile_store(upstream, delay_ms=delay_ms) as store:
        print(store.endpoint, flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
