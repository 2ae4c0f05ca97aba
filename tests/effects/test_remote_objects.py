"""Remote stores when things go wrong: lost answers, refusals, missing buckets, and no secrets."""

from __future__ import annotations

import traceback
import uuid
from collections.abc import Callable

import obstore
import pytest
from obstore.store import MemoryStore

from omnigraph.effects import remote_objects
from omnigraph.effects.failures import FailureClass, StorageFailure
from omnigraph.effects.objects import ObjectStore, Token, open_store
from omnigraph.effects.remote_objects import RemoteObjects
from omnigraph.effects.requests import measure
from omnigraph.effects.uri import Root
from tests.effects.scripted_s3 import DROP, OK, SECRETS, Reply, ScriptedS3

TOKEN = Token('"scripted"')


@pytest.fixture
def store(scripted: ScriptedS3, monkeypatch: pytest.MonkeyPatch) -> ObjectStore:
    monkeypatch.setattr(remote_objects, "_PAUSE_S", 0.001)
    return open_store(Root.parse("s3://bucket/graph"))


def failure_of(operation: Callable[[], object]) -> StorageFailure:
    with pytest.raises(StorageFailure) as caught:
        operation()
    return caught.value


# --- conditional writes ---------------------------------------------------------------------------


def test_conditional_writes_send_their_conditions(store: ObjectStore, scripted: ScriptedS3):
    assert store.write_if_absent("a", b"1") is True
    assert store.write_if_match("a", b"2", TOKEN) == TOKEN
    create, swap = scripted.seen
    assert (create.method, create.path, create.if_none_match) == ("PUT", "/bucket/graph/a", "*")
    assert (swap.if_match, swap.if_none_match) == (TOKEN, None)


@pytest.mark.parametrize("reply", [Reply(412, "PreconditionFailed"), Reply(404, "NoSuchKey")])
def test_a_refused_swap_is_a_lost_race(store: ObjectStore, scripted: ScriptedS3, reply: Reply):
    scripted.script([reply])
    assert store.write_if_match("a", b"1", TOKEN) is None
    assert len(scripted.seen) == 1


@pytest.mark.parametrize("lost", [DROP, Reply(500, "InternalError"), Reply(503, "SlowDown")])
def test_c_sto_037_a_lost_answer_is_never_reported_as_a_lost_race(
    store: ObjectStore, scripted: ScriptedS3, lost: Reply
):
    """The first attempt may have landed; then it is our own write that the second one meets."""
    for operation in (
        lambda: store.write_if_absent("a", b"1"),
        lambda: store.write_if_match("a", b"1", TOKEN),
    ):
        scripted.script([lost, Reply(412, "PreconditionFailed")])
        failure = failure_of(operation)
        assert failure.failure_class is FailureClass.UNKNOWN
        assert "read the object" in (failure.hint or "")
        assert len(scripted.seen) == 2


def test_a_lost_answer_followed_by_success_is_a_success(store: ObjectStore, scripted: ScriptedS3):
    scripted.script([DROP, OK])
    assert store.write_if_absent("a", b"1") is True
    scripted.script([Reply(503, "SlowDown"), OK])
    assert store.write_if_match("a", b"1", TOKEN) == TOKEN


def test_an_undecided_conflict_is_asked_again(store: ObjectStore, scripted: ScriptedS3):
    """S3 answers 409 when requests on one name overlap and none of them has been decided."""
    conflict = Reply(409, "ConditionalRequestConflict")
    scripted.script([conflict, OK])
    assert store.write_if_absent("a", b"1") is True
    scripted.script([conflict, Reply(412, "PreconditionFailed")])
    assert store.write_if_absent("a", b"1") is False  # nothing of ours can have landed
    scripted.script([conflict] * 9)
    failure = failure_of(lambda: store.write_if_match("a", b"1", TOKEN))
    assert failure.failure_class is FailureClass.TRANSIENT
    assert "getting in the way" in failure.message


def test_a_store_that_stays_away_is_a_transient_failure(store: ObjectStore, scripted: ScriptedS3):
    scripted.script([DROP] * 9)
    with measure() as io:
        failure = failure_of(lambda: store.write_if_match("a", b"1", TOKEN))
    assert failure.failure_class is FailureClass.TRANSIENT
    assert len(scripted.seen) == io.report().requests == 8


def test_a_lost_answer_to_the_opening_probe_is_asked_again(
    store: ObjectStore, scripted: ScriptedS3
):
    refused = Reply(412, "PreconditionFailed")
    scripted.script([DROP, refused, OK, OK, refused, refused, OK])
    store.probe_atomic_create()
    names = {seen.path for seen in scripted.seen if "probe-" in seen.path}
    assert len(names) == 2


def test_the_endpoint_of_the_service_is_the_one_that_is_asked(
    scripted: ScriptedS3, monkeypatch: pytest.MonkeyPatch
):
    """The client reads the environment too; it must not come to another conclusion."""
    endpoint = scripted.environment()["AWS_ENDPOINT_URL"]
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", f"{endpoint}/")
    open_store(Root.parse("s3://bucket")).write("a", b"1")
    assert [seen.path for seen in scripted.seen] == ["/bucket/a"]


def test_virtual_hosted_style_is_not_undone_by_the_environment(
    no_aws: None, monkeypatch: pytest.MonkeyPatch
):
    """Left alone, the client would prefer the variable, which does not name the bucket."""
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "https://store.example")
    monkeypatch.setenv("AWS_S3_FORCE_PATH_STYLE", "false")
    configs: list[dict[str, str]] = []

    def record(*args: object, config: dict[str, str], **kwargs: object) -> MemoryStore:
        configs.append(config)
        return MemoryStore()

    monkeypatch.setattr(remote_objects, "S3Store", record)
    open_store(Root.parse("s3://bucket"))
    for config in configs:
        assert config["aws_endpoint_url_s3"] == "https://bucket.store.example"
    assert len(configs) == 2


# --- answers and their classes --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (Reply(403, "AccessDenied"), FailureClass.CONFIGURATION),
        (Reply(401, "Unauthorized"), FailureClass.CONFIGURATION),
        (Reply(404, "NoSuchBucket"), FailureClass.CONFIGURATION),
        (Reply(301, "PermanentRedirect"), FailureClass.CONFIGURATION),
        (Reply(400, "AuthorizationHeaderMalformed"), FailureClass.CONFIGURATION),
        (Reply(501, "NotImplemented"), FailureClass.CONFIGURATION),
        (Reply(400, "KeyTooLongError"), FailureClass.PERMANENT),
        (Reply(405, "MethodNotAllowed"), FailureClass.PERMANENT),
        (Reply(429, "TooManyRequests"), FailureClass.TRANSIENT),
        (Reply(503, "SlowDown"), FailureClass.TRANSIENT),
    ],
)
def test_c_sto_046_answers_get_a_class_and_lose_their_secrets(
    store: ObjectStore, scripted: ScriptedS3, reply: Reply, expected: FailureClass
):
    scripted.script([reply] * 8)
    failure = failure_of(lambda: store.write_if_match("dir/a", b"1", TOKEN))
    assert failure.failure_class is expected
    assert failure.details == {
        "failure_class": expected.value,
        "operation": "swap",
        "object": "s3://bucket/graph/dir/a",
    }
    shown = [
        *traceback.format_exception(failure),
        *(repr(failure), failure.render(), repr(failure.envelope()), repr(failure.details)),
        *(repr(failure.__cause__), repr(failure.__context__)),
    ]
    assert not [secret for secret in SECRETS for text in shown if secret in text]


def test_c_sto_046_no_operation_shows_credentials(store: ObjectStore, scripted: ScriptedS3):
    for operation in (
        lambda: store.read("a"),
        lambda: store.read_if_exists("a"),
        lambda: store.read_versioned("a"),
        lambda: store.write("a", b""),
        lambda: store.write_if_absent("a", b""),
        lambda: store.exists("a"),
        lambda: store.list("a"),
        lambda: store.delete("a"),
        lambda: store.delete_prefix("a"),
        lambda: store.rename("a", "b"),
        store.probe_atomic_create,
    ):
        scripted.script([Reply(403, "SignatureDoesNotMatch")] * 9)
        failure = failure_of(operation)
        assert failure.failure_class is FailureClass.CONFIGURATION
        assert failure.hint
        shown = "".join(traceback.format_exception(failure)) + failure.render()
        assert not [secret for secret in SECRETS if secret in shown]


def test_c_sto_046_handles_do_not_show_credentials(store: ObjectStore):
    shown = f"{store!r} {store.root!r} {store.root} {vars(store)!r}"
    assert not [secret for secret in SECRETS if secret in shown]


def test_a_missing_bucket_is_no_proof_of_absence(s3_root: Root):
    store = open_store(Root.parse(f"s3://missing-{uuid.uuid4().hex}/graph"))
    for operation in (
        lambda: store.read("a"),
        lambda: store.read_if_exists("a"),
        lambda: store.read_versioned("a"),
        lambda: store.exists("a"),
        store.list,
        lambda: store.write("a", b""),
        lambda: store.write_if_absent("a", b""),
        lambda: store.write_if_match("a", b"", TOKEN),
    ):
        failure = failure_of(operation)
        assert failure.failure_class is FailureClass.CONFIGURATION
        assert "bucket does not exist" in failure.message


def test_exists_without_permission_is_a_failure(store: ObjectStore, scripted: ScriptedS3):
    scripted.script([Reply(403)])
    assert failure_of(lambda: store.exists("a")).failure_class is FailureClass.CONFIGURATION


# --- the probe ------------------------------------------------------------------------------------


def test_probe_refuses_a_store_that_ignores_conditions(store: ObjectStore, scripted: ScriptedS3):
    failure = failure_of(store.probe_atomic_create)  # the script says yes to everything
    assert failure.failure_class is FailureClass.CONFIGURATION
    assert "If-None-Match" in failure.message
    assert scripted.seen[-1].method == "POST"  # the probe object is deleted


def test_probe_refuses_a_store_that_ignores_if_match(store: ObjectStore, scripted: ScriptedS3):
    scripted.script([OK, Reply(412, "PreconditionFailed"), OK])
    assert "If-Match" in failure_of(store.probe_atomic_create).message


def test_residue_of_a_probe_is_invisible(memory_root: Root):
    memory = MemoryStore()
    store = RemoteObjects(memory_root, memory, memory)
    obstore.put(memory, ".omnigraph-probe-1", b"")
    obstore.put(memory, "a/.omnigraph-probe-2", b"")
    assert store.list() == []
    assert store.exists("a") is False
    store.delete_prefix("a")
    assert [meta["path"] for page in obstore.list(memory) for meta in page] == [
        ".omnigraph-probe-1"
    ]


# --- listing and memory ---------------------------------------------------------------------------


def test_a_long_list_counts_its_pages(memory_root: Root):
    store = open_store(memory_root)
    for i in range(2_001):
        store.write(f"a/{i:04}", b"")
    with measure() as io:
        assert len(store.list("a")) == 2_001
    assert io.report().count("object", "list") == io.report().round_trips == 3


def test_memory_roots_are_shared_by_name_and_end_with_their_handles():
    name = uuid.uuid4().hex
    first = open_store(Root.parse(f"memory://{name}"))
    first.write("a", b"1")
    assert open_store(Root.parse(f"memory://{name}/")).read("a") == b"1"
    assert open_store(Root.parse(f"memory://{name}/other")).list() == []
    del first
    assert open_store(Root.parse(f"memory://{name}")).list() == []
