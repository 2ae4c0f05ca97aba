"""Vectors of stored texts, computed by Spark tasks or by threads, and stored in scratch files.

A task reads its texts from storage, sends them to the provider in batches, and writes a file for
each batch as soon as the provider replies. Files are named by the number of their batch: an attempt
that replaces a killed worker skips batches that have a file, and so does a run that resumes after a
killed driver. Only the driver opens the graph; `graph.embedding` loads the files.

One rate limit applies to all tasks: on Spark each asks a small server in the driver before sending.
"""

from __future__ import annotations

import hmac
import json
import secrets
import socket
import socketserver
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import field, replace
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.embedding.client import NOTHING_USED, EmbeddingClient, Usage
from omnigraph.embedding.config import BulkLimits, EmbeddingConfig, Pace, RateLimiter, RetryLimits
from omnigraph.errors import EmbeddingError, StorageError
from omnigraph.loading.executors import TaskRunner
from omnigraph.loading.files import Files
from omnigraph.model.arrow import ID
from omnigraph.model.records import dataclass
from omnigraph.model.types import ROW_ADDRESS, ROW_ID
from omnigraph.storage.written import (
    Numbers,
    committed_batches,
    fragment_groups,
    open_version,
    rows_by_place,
)

if TYPE_CHECKING:
    from lance import LanceDataset

NODE = "node id"
"""The column of scratch files with the ids of nodes; no property can have this name."""
SCAN_ROWS_MIN = 250_000
"""The least number of rows that a task scans for missing vectors, unless the table has fewer."""

_ABOUT = b"omnigraph"
_REFUSED_TEXT = (400, 413, 422)
"""Statuses by which a provider refuses a request's content: other texts of it may be fine."""


# --- rows without a vector ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Texts:
    """Rows of one version of a table that have a text and no vector."""

    address: str
    version: int
    row_ids: Numbers
    addresses: Numbers

    def __len__(self) -> int:
        return len(self.row_ids)

    def part(self, start: int, rows: int) -> Texts:
        """A range of these rows."""
        end = start + rows
        return replace(self, row_ids=self.row_ids[start:end], addresses=self.addresses[start:end])


def missing_vectors(
    handle: LanceDataset,
    source: str,
    vector: str,
    runner: TaskRunner,
    storage_options: Mapping[str, str],
) -> Texts:
    """The rows that need a vector: those with a text that is not blank, and without one."""
    address, version, options = handle.uri, handle.version, dict(storage_options)
    groups = [group for group, _ in fragment_groups(handle, SCAN_ROWS_MIN)]

    def look(number: int) -> tuple[Numbers, Numbers]:
        found: list[tuple[Numbers, Numbers]] = []
        for batch in committed_batches(
            address,
            version,
            groups[number],
            [source],
            filter=f"`{vector}` IS NULL AND `{source}` IS NOT NULL",
            storage_options=options or None,
            with_places=True,
        ):
            is_text = pc.greater(pc.utf8_length(pc.utf8_trim_whitespace(batch[source])), 0)
            rows = batch.filter(is_text)
            places = (rows[name].to_numpy().astype(np.int64) for name in (ROW_ID, ROW_ADDRESS))
            found.append((*places,))
        return _joined(found)

    parts = runner.map_tasks("plan", "texts without vectors", len(groups), look)
    return Texts(address, version, *_joined(parts))


def _joined(parts: Sequence[tuple[Numbers, Numbers]]) -> tuple[Numbers, Numbers]:
    none = np.zeros(0, np.int64)
    row_ids, addresses = (np.concatenate([none, *(part[at] for part in parts)]) for at in (0, 1))
    return row_ids, addresses


# --- the work of tasks ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class VectorJob:
    """The arguments of the tasks of one job; tasks do not open the graph."""

    texts: Texts
    identity: tuple[str, ...]
    """The columns by which a load matches a node."""
    source: str
    vector: str
    dimension: int
    folder: str
    """The folder of the scratch files."""
    about: Mapping[str, str]
    """Metadata of each file."""
    config: EmbeddingConfig
    retries: RetryLimits
    limits: BulkLimits
    files: Files
    storage_options: Mapping[str, str] = field(repr=False)

    @property
    def batches(self) -> int:
        """The number of requests, without retries."""
        return -(-len(self.texts) // self.limits.batch_texts)


@dataclass(frozen=True, slots=True)
class EmbeddedTasks:
    """The results of tasks."""

    texts: int = 0
    characters: int = 0
    usage: Usage = NOTHING_USED
    failure: EmbeddingError | None = None
    """The first failure; replies before it, or to other threads, are in files."""

    def plus(self, other: EmbeddedTasks) -> EmbeddedTasks:
        """The sums of both, and the first failure."""
        return EmbeddedTasks(
            self.texts + other.texts,
            self.characters + other.characters,
            self.usage.plus(other.usage),
            self.failure or other.failure,
        )


def put_vectors_aside(job: VectorJob, runner: TaskRunner) -> EmbeddedTasks:
    """Compute the vectors of a job; a failure of the provider is returned in the result."""
    slots = 1 if runner.uses_threads else runner.slots
    tasks = max(1, min(slots, job.limits.concurrency, job.batches))
    threads = max(1, job.limits.concurrency // tasks)
    with _paced(job.limits, runner) as pace:

        def work(number: int) -> EmbeddedTasks:
            first, end = (job.batches * at // tasks for at in (number, number + 1))
            return _TaskBatches(job, pace).run(first, end, threads)

        done = runner.map_tasks("embed", f"{job.source} as {job.vector}", tasks, work)
    return reduce(EmbeddedTasks.plus, done, EmbeddedTasks())


class _TaskBatches:
    """The work of one task: consecutive batches of a job."""

    def __init__(self, job: VectorJob, pace: Pace | None) -> None:
        self._job = job
        self._client = EmbeddingClient(job.config, job.retries, pace=pace)
        self._stopped = threading.Event()

    def run(self, first: int, end: int, threads: int) -> EmbeddedTasks:
        """Compute batches ``first`` to ``end``, except those with a file of an earlier attempt."""
        job, size = self._job, self._job.limits.batch_texts
        there = {name: path for path, name in job.files.below(job.folder)}
        mine = job.texts.part(first * size, (end - first) * size)
        dataset = open_version(mine.address, mine.version, dict(job.storage_options) or None)
        columns = list(dict.fromkeys([ID, *job.identity, job.source]))
        rows = rows_by_place(dataset, mine.row_ids, mine.addresses, columns)

        def one(batch: int) -> EmbeddedTasks:
            name = f"{batch:08}.arrow"
            if name in there:
                return _recorded(job.files, there[name])
            if self._stopped.is_set():
                return EmbeddedTasks()
            return self._compute(rows.slice((batch - first) * size, size), name)

        with ThreadPoolExecutor(threads) as pool:
            return reduce(EmbeddedTasks.plus, pool.map(one, range(first, end)), EmbeddedTasks())

    def _compute(self, rows: pa.Table, name: str) -> EmbeddedTasks:
        """Request the vectors of a batch, and write them to its file."""
        used: list[Usage] = []
        texts = rows[self._job.source].to_pylist()
        failure: EmbeddingError | None = None
        try:
            vectors = self._answers(texts, used)
        except EmbeddingError as error:
            # The provider is down, or would refuse the next batch too.
            self._stopped.set()
            return EmbeddedTasks(usage=_total(used), failure=error)
        kept = [at for at, vector in enumerate(vectors) if not isinstance(vector, EmbeddingError)]
        for at, vector in enumerate(vectors):
            if isinstance(vector, EmbeddingError):
                failure = failure or _refusal(vector, rows[ID][at].as_py())
        done = EmbeddedTasks(len(kept), sum(len(texts[at]) for at in kept), _total(used))
        if kept:
            self._write(rows.take(kept), [vectors[at] for at in kept], name, done)
        return replace(done, failure=failure)

    def _answers(
        self, texts: Sequence[str], used: list[Usage]
    ) -> list[list[float] | EmbeddingError]:
        """The vector of each text, or the error by which the provider refuses that text."""
        try:
            found = self._client.embed_all(texts, self._job.dimension, count=used.append)
            return list(found)
        except EmbeddingError as error:
            if error.details.get("status") not in _REFUSED_TEXT:
                raise
            if len(texts) == 1:
                return [error]
        half = len(texts) // 2
        return [*self._answers(texts[:half], used), *self._answers(texts[half:], used)]

    def _write(self, rows: pa.Table, vectors: list[Any], name: str, done: EmbeddedTasks) -> None:
        job = self._job
        columns = {each: rows[each] for each in job.identity if each != ID}
        ids = {NODE: rows[ID]} if columns else {NODE: rows[ID], ID: rows[ID]}
        found = pa.array(vectors, pa.list_(pa.float32(), job.dimension))
        table = pa.table({**ids, **columns, job.vector: found})
        counts = {
            "texts": done.texts,
            "characters": done.characters,
            "requests": done.usage.requests,
            "retries": done.usage.retries,
            "tokens": done.usage.tokens,
        }
        about = json.dumps({**job.about, "counts": counts})
        write_table(
            table.replace_schema_metadata({_ABOUT: about}), f"{job.folder}/{name}", job.files
        )


def _total(used: Sequence[Usage]) -> Usage:
    return reduce(Usage.plus, used, NOTHING_USED)


def _refusal(error: EmbeddingError, node_id: str) -> EmbeddingError:
    return EmbeddingError(
        f"the text of node '{node_id}': {error.message}",
        hint="shorten or correct the text, and embed again: the other vectors are kept",
        details={**error.details, "id": node_id},
    )


# --- scratch files --------------------------------------------------------------------------------


def write_table(table: pa.Table, path: str, files: Files) -> None:
    """Write a file atomically: readers never see a part of it."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    files.write(path, sink.getvalue().to_pybytes())


def read_table(path: str, files: Files) -> pa.Table:
    """The rows of a file."""
    with files.open(path) as stream, pa.ipc.open_file(stream) as reader:
        return reader.read_all()


def about_file(path: str, files: Files) -> dict[str, Any]:
    """The metadata of a file."""
    with files.open(path) as stream, pa.ipc.open_file(stream) as reader:
        found: dict[str, Any] = json.loads((reader.schema.metadata or {}).get(_ABOUT, b"{}"))
        return found


def _recorded(files: Files, path: str) -> EmbeddedTasks:
    """The result of the attempt that wrote a file."""
    counts = about_file(path, files)["counts"]
    usage = Usage(counts["requests"], counts["retries"], counts["tokens"])
    return EmbeddedTasks(counts["texts"], counts["characters"], usage)


# --- one rate for all tasks -----------------------------------------------------------------------

ANSWER_SECONDS_MAX = 30.0
"""The longest that a task waits for the driver, which replies at once."""

_LINE_MAX = 200


@contextmanager
def _paced(limits: BulkLimits, runner: TaskRunner) -> Iterator[Pace | None]:
    """The rate limit for tasks: threads share the limiter, workers ask the driver."""
    if not limits.has_rate:
        yield None
    elif runner.uses_threads:
        yield RateLimiter(limits)
    else:
        conf = runner.spark.sparkContext.getConf()
        host = conf.get("spark.driver.host") or "127.0.0.1"
        with PaceServer(
            RateLimiter(limits), conf.get("spark.driver.bindAddress") or host
        ) as server:
            yield server.pace(host)


class PaceServer:
    """Tells workers when they may send their next request, by a limiter of this process.

    A connection begins with a secret line, which workers receive with their tasks. Each later line
    is `reserve` or `hold` and a number; the reply is a number of seconds.
    """

    def __init__(self, limiter: RateLimiter, bind: str) -> None:
        self._secret = secrets.token_hex(16)
        self._server = _Server((bind, 0), _Handler)
        self._server.secret = self._secret
        self._server.limiter = limiter
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.05,), name="omnigraph-pace", daemon=True
        )

    def __enter__(self) -> PaceServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def pace(self, host: str) -> RemotePace:
        """The client for workers, which connect to this process as ``host``."""
        return RemotePace(host, int(self._server.server_address[1]), self._secret)


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True
    secret = ""
    limiter: RateLimiter


class _Handler(socketserver.StreamRequestHandler):
    server: _Server

    def handle(self) -> None:
        """Reply to the lines of one connection until it is closed."""
        told = self.rfile.readline(_LINE_MAX).strip()
        if not hmac.compare_digest(told, self.server.secret.encode()):
            return
        while words := self.rfile.readline(_LINE_MAX).split():
            verb, number = words[0], float(words[1])
            seconds = 0.0
            if verb == b"hold":
                self.server.limiter.hold(number)
            else:
                seconds = self.server.limiter.reserve(int(number))
            self.wfile.write(f"{seconds:.6f}\n".encode())


class RemotePace:
    """The limiter of another process, over one connection that is opened on first use."""

    def __init__(self, host: str, port: int, secret: str) -> None:
        self._address = (host, port)
        self._secret = secret
        self._lock = threading.Lock()
        self._stream: Any = None

    def __getstate__(self) -> tuple[tuple[str, int], str]:
        return self._address, self._secret

    def __setstate__(self, state: tuple[tuple[str, int], str]) -> None:
        (host, port), secret = state
        self.__init__(host, port, secret)  # type: ignore[misc]

    def reserve(self, texts: int) -> float:
        """The seconds to wait before sending a request with so many texts."""
        return self._ask(f"reserve {texts}")

    def hold(self, seconds: float) -> None:
        """Delay all requests by so many seconds."""
        self._ask(f"hold {seconds}")

    def _ask(self, line: str) -> float:
        with self._lock:
            try:
                if self._stream is None:
                    opened = socket.create_connection(self._address, ANSWER_SECONDS_MAX)
                    self._stream = opened.makefile("rwb")
                    opened.close()
                    self._stream.write(f"{self._secret}\n".encode())
                self._stream.write(f"{line}\n".encode())
                self._stream.flush()
                return float(self._stream.readline(_LINE_MAX))
            except (OSError, ValueError) as error:
                host, port = self._address
                raise StorageError(
                    f"the driver does not say at {host}:{port} when the next request may be sent",
                    hint="let executors reach the driver (`spark.driver.host`), or leave the rate"
                    " to the provider: without a limit they do not ask",
                ) from error
