"""Text objects in a remote store (S3 and its kin) or in memory, through the object-store library.

Conditional writes use `If-None-Match: *` and `If-Match: <e-tag>`. They are sent without the
library's automatic retries: if the first request took effect, its retry fails with "precondition
failed", and the library would report a success as a lost race. The loop here retries itself, and
reports a refusal after an attempt without a reply as unknown.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import timedelta
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, TypeVar

import obstore
from obstore.store import MemoryStore, S3Store

from omnigraph.effects.clock import MINT
from omnigraph.effects.failures import FailureClass, StorageFailure, StoreReply, from_store_error
from omnigraph.effects.objects import CHUNK_BYTES, Attributes, ObjectStore, Token
from omnigraph.effects.requests import concurrently, count
from omnigraph.effects.uri import HIDDEN_PREFIX, Root, check_key, check_prefix, is_hidden
from omnigraph.errors import InputError, LimitExceeded

if TYPE_CHECKING:
    from obstore import PutMode

T = TypeVar("T")

_RETRIES_MAX = 5
_RETRY_TIMEOUT = timedelta(seconds=30)
_CONDITIONAL_ATTEMPTS_MAX = 8
"""With doubling pauses, enough for an outage of six seconds."""
_CONDITIONAL_SECONDS_MAX = 10.0
"""No further attempt is begun after this time: each may take a whole timeout."""
_PROBES_MAX = 4
_PAUSE_S = 0.05
_LIST_PAGE = 1_000


class RemoteObjects(ObjectStore):
    """The object contract on a store with conditional writes.

    ``once`` is a client of the same store that sends each request once, without retries.
    """

    def __init__(
        self, root: Root, store: S3Store | MemoryStore, once: S3Store | MemoryStore
    ) -> None:
        self.root = root
        self._store = store
        self._once = once

    # --- reading ------------------------------------------------------------------------------

    def read_at_most(self, key: str, bytes_max: int) -> bytes:
        """The content of an object; raises `LimitExceeded` before fetching a longer one."""
        check_key(key)

        def request() -> bytes | int:
            result = obstore.get(self._store, key)
            size = result.meta["size"]
            return size if size > bytes_max else bytes(result.bytes())

        found = self._ask("read", key, request)
        if isinstance(found, int):
            raise LimitExceeded(f"bytes of {self._target(key)}", bytes_max, found)
        return found

    def read_if_exists(self, key: str) -> bytes | None:
        """The content of an object in one read; `None` only for a proven absence."""
        found = self._get_if_exists(key)
        return found[0] if found else None

    def read_each(self, keys: Sequence[str]) -> tuple[bytes | None, ...]:
        """The contents of several objects, as from `read_if_exists`, read concurrently."""
        return concurrently(*(partial(self.read_if_exists, key) for key in keys), threads=True)

    def read_versioned(self, key: str) -> tuple[bytes, Token] | None:
        """Content and token of an object, from one response."""
        found = self._get_if_exists(key)
        return None if found is None else (found[0], self._token("read", key, found[1]))

    def exists(self, key: str) -> bool:
        """Whether there is an object of this name, or at least one object below it."""
        check_key(key)
        try:
            self._ask("exists", key, lambda: obstore.head(self._store, key))
        except StorageFailure as failure:
            if failure.failure_class is not FailureClass.NOT_FOUND:
                raise
            # The first request returns "not found" for a missing bucket, too; a list fails then.
            return self._ask("exists", key, lambda: any(map(_is_visible, self._names(key))))
        return True

    def list(self, prefix: str = "") -> list[str]:
        """Sorted names of all objects below ``prefix``."""
        return sorted(filter(_is_visible, self._list(check_prefix(prefix))))

    def attributes(self, key: str) -> Attributes | None:
        """Size and e-tag of an object; `None` for a proven absence."""
        check_key(key)
        try:
            meta = self._ask("stat", key, lambda: obstore.head(self._store, key))
        except StorageFailure as failure:
            if failure.failure_class is FailureClass.NOT_FOUND:
                return None
            raise
        return Attributes(meta["size"], meta["e_tag"])

    def sizes(self, prefix: str = "") -> dict[str, int]:
        """The objects of `list`, with their sizes."""
        prefix = check_prefix(prefix)

        def request() -> dict[str, int]:
            pages = obstore.list(self._store, prefix or None, chunk_size=_LIST_PAGE)
            return {meta["path"]: meta["size"] for page in pages for meta in page}

        found = self._ask("list", prefix, request)
        return {name: found[name] for name in sorted(found) if _is_visible(name)}

    def chunks(self, key: str) -> Iterator[bytes]:
        """The content of an object in parts."""
        check_key(key)
        stream = self._ask("read", key, lambda: obstore.get(self._store, key).stream(CHUNK_BYTES))
        parts = iter(stream)
        while True:
            try:
                part = next(parts)
            except StopIteration:
                return
            except Exception as error:
                failure = from_store_error(error, "read", self._target(key))
                break
            yield bytes(part)
        raise failure

    # --- writing ------------------------------------------------------------------------------

    def write_chunks(self, key: str, parts: Iterable[bytes]) -> None:
        """Create or replace an object from parts, in several requests if it is large.

        If reading the parts fails, the object is not created.
        """
        check_key(key)
        # Not `obstore.put`: it cannot wait for parts that are read from a store themselves.
        writer = self._ask("write", key, lambda: obstore.open_writer(self._store, key))
        for part in parts:
            self._sent(key, partial(writer.write, part))
        self._sent(key, writer.close)

    def _sent(self, key: str, request: Callable[[], object]) -> None:
        """Send a part of a request that was counted already."""
        try:
            request()
            return
        except Exception as error:
            failure = from_store_error(error, "write", self._target(key))
        raise failure

    def write(self, key: str, data: bytes) -> None:
        """Create or replace an object."""
        check_key(key)
        self._ask("write", key, lambda: _put(self._store, key, data, "overwrite"))

    def write_if_absent(self, key: str, data: bytes) -> bool:
        """Create an object; False if the name was taken."""
        return self._put_if("create", check_key(key), data, "create") is not None

    def write_if_match(self, key: str, data: bytes, token: Token) -> Token | None:
        """Replace an object that still has the content of ``token``."""
        tag = self._put_if("swap", check_key(key), data, {"e_tag": token})
        return None if tag is None else self._token("swap", key, tag)

    def delete(self, key: str) -> None:
        """Remove an object; no error if there is none."""
        check_key(key)
        self._ask("delete", key, lambda: obstore.delete(self._store, key))

    def delete_prefix(self, prefix: str) -> None:
        """Remove every object below ``prefix``."""
        prefix = check_prefix(prefix)
        if not prefix:
            raise InputError("the empty prefix cannot be deleted", hint="name what to delete")
        names = self._list(prefix)
        if names:
            self._ask("delete", prefix, lambda: obstore.delete(self._store, names))

    def copy(self, source: str, target: str) -> None:
        """Copy an object within the store."""
        check_key(source)
        check_key(target)
        self._ask("copy", source, lambda: obstore.copy(self._store, source, target))

    def rename(self, source: str, target: str) -> None:
        """Copy an object over the target, then delete it."""
        check_key(source)
        check_key(target)
        if source == target:
            # The same name: copying and then deleting the source would delete the object.
            self._ask("rename", source, lambda: obstore.head(self._store, source))
            return
        self._ask("rename", source, lambda: obstore.copy(self._store, source, target))
        self._ask("rename", source, lambda: obstore.delete(self._store, source))

    def probe_atomic_create(self) -> None:
        """Verify that the store implements both conditions; removes its objects."""
        for _ in range(_PROBES_MAX - 1):
            try:
                self._probe()
                return
            except StorageFailure as failure:
                # The reply was lost: repeat the probe with another name.
                if failure.failure_class is not FailureClass.UNKNOWN:
                    raise
        self._probe()

    def _probe(self) -> None:
        key = f"{HIDDEN_PREFIX}probe-{MINT.ulid().lower()}"
        try:
            created = self._put_if("probe", key, b"1", "create")
            refused = self._put_if("probe", key, b"2", "create") is None
            other = '"00000000000000000000000000000000"'
            refused = refused and self._put_if("probe", key, b"3", {"e_tag": other}) is None
        finally:
            self._ask("probe", key, lambda: obstore.delete(self._store, key))
        if created is None or not refused:
            raise StorageFailure(
                FailureClass.CONFIGURATION,
                "write safely below",
                self.root.uri,
                "the store ignores the conditions If-None-Match and If-Match",
                hint="use a store with conditional writes, such as Amazon S3, R2 or MinIO",
            )

    # --- inside -------------------------------------------------------------------------------

    def _ask(self, operation: str, key: str, request: Callable[[], T]) -> T:
        """Send and count one request; translates its errors without their text."""
        target = self._target(key)
        count("object", operation, target)
        try:
            return request()
        except Exception as error:
            failure = from_store_error(error, operation, target)
        # Raised outside of the handler, so that the failure's context does not keep the original.
        raise failure

    def _target(self, key: str) -> str:
        return f"{self.root.uri.rstrip('/')}/{key}" if key else self.root.uri

    def _get_if_exists(self, key: str) -> tuple[bytes, str | None] | None:
        check_key(key)

        def request() -> tuple[bytes, str | None]:
            result = obstore.get(self._store, key)
            return bytes(result.bytes()), result.meta["e_tag"]

        try:
            return self._ask("read", key, request)
        except StorageFailure as failure:
            if failure.failure_class is FailureClass.NOT_FOUND:
                return None
            raise

    def _names(self, prefix: str) -> chain[str]:
        pages = obstore.list(self._store, prefix or None, chunk_size=_LIST_PAGE)
        return chain.from_iterable((meta["path"] for meta in page) for page in pages)

    def _list(self, prefix: str) -> Sequence[str]:
        """All names below ``prefix``, hidden ones included."""
        names = self._ask("list", prefix, lambda: list(self._names(prefix)))
        further_pages = max(0, len(names) - 1) // _LIST_PAGE
        if further_pages:
            target = self._target(prefix)
            count("object", "list", target, further_pages, round_trips=further_pages)
        return names

    def _put_if(self, operation: str, key: str, data: bytes, mode: PutMode) -> str | None:
        """Send a conditional write; returns the e-tag, `None` if the condition did not hold."""
        target = self._target(key)
        may_have_landed = False
        failure: StorageFailure | None = None
        began = time.monotonic()
        for attempt in range(_CONDITIONAL_ATTEMPTS_MAX):
            if attempt and time.monotonic() - began > _CONDITIONAL_SECONDS_MAX:
                break
            if attempt:
                time.sleep(_PAUSE_S * 2 ** (attempt - 1))
            count("object", operation, target)
            try:
                return _put(self._once, key, data, mode)
            except Exception as error:
                reply = StoreReply.of(error)
                failure = from_store_error(error, operation, target)
            match failure.failure_class:
                case FailureClass.TRANSIENT:
                    may_have_landed = True
                case FailureClass.PRECONDITION if reply.status == 409:
                    # S3: another request on this name was in progress, and this one had no effect:
                    # send it again.
                    failure = _contended(operation, target)
                case FailureClass.PRECONDITION if may_have_landed:
                    raise _unattributed(operation, target)
                case FailureClass.PRECONDITION:
                    return None
                case _:
                    raise failure
        assert failure is not None
        raise failure

    def _token(self, operation: str, key: str, tag: str | None) -> Token:
        if not tag:
            raise StorageFailure(
                FailureClass.CONFIGURATION,
                operation,
                self._target(key),
                "the store returns no e-tags",
                hint="use a store with conditional writes (If-Match and If-None-Match)",
            )
        return Token(tag)


def open_s3(root: Root, *, timeout: str = "15s") -> RemoteObjects:
    """The objects below an `s3://` root, with options from the environment.

    ``timeout`` applies to one request, its payload included.
    """
    options = root.storage_options()
    if "aws_endpoint" in options:
        # The library also reads the environment, in which this variable overrides its option.
        options["aws_endpoint_url_s3"] = options["aws_endpoint"]

    def connect(retries_max: int) -> S3Store:
        return S3Store(
            root.bucket,
            prefix=root.prefix or None,
            config=options,  # type: ignore[arg-type]
            client_options={"connect_timeout": "5s", "timeout": timeout},
            retry_config={"max_retries": retries_max, "retry_timeout": _RETRY_TIMEOUT},
        )

    try:
        return RemoteObjects(root, connect(_RETRIES_MAX), connect(0))
    except Exception as error:
        failure = from_store_error(error, "open", root.uri)
    raise failure


_in_memory: weakref.WeakValueDictionary[str, RemoteObjects] = weakref.WeakValueDictionary()


def open_memory(root: Root) -> RemoteObjects:
    """The objects of a `memory://` root, shared by all handles of this process."""
    objects = _in_memory.get(root.uri)
    if objects is None:
        store = MemoryStore()
        objects = _in_memory.setdefault(root.uri, RemoteObjects(root, store, store))
    return objects


def _put(store: S3Store | MemoryStore, key: str, data: bytes, mode: PutMode) -> str:
    # Never a multipart upload: conditions apply to single requests only.
    return obstore.put(store, key, data, mode=mode, use_multipart=False)["e_tag"] or ""


def _is_visible(name: str) -> bool:
    return not any(map(is_hidden, name.split("/")))


def _contended(operation: str, target: str) -> StorageFailure:
    return StorageFailure(
        FailureClass.TRANSIENT,
        operation,
        target,
        "other requests on the object kept getting in the way",
        hint="read the object and try again",
    )


def _unattributed(operation: str, target: str) -> StorageFailure:
    return StorageFailure(
        FailureClass.UNKNOWN,
        operation,
        target,
        "an attempt was not answered, and now its condition does not hold any more;"
        " the object holds this write or another one",
        hint="read the object to learn which",
    )
