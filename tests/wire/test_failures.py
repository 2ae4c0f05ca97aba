"""Errors there and back again."""

from __future__ import annotations

from dataclasses import fields

import pytest

from omnigraph import errors
from omnigraph.errors import OmnigraphError
from omnigraph.wire.answers import ErrorEnvelope
from omnigraph.wire.failures import (
    MethodNotAllowed,
    envelope_of,
    error_of,
    status_of,
)

EXAMPLES: list[tuple[OmnigraphError, int]] = [
    (errors.InputError("bad", hint="do better"), 400),
    (errors.QueryParseError("bad"), 400),
    (errors.ChangeCursorRejected("bad"), 400),
    (errors.WrongVerb("query 'add' writes", hint="send it to `/mutate`"), 400),
    (errors.ParameterError("age", "parameter 'age' is missing"), 400),
    (errors.PolicyDenied("no", action="change", actor="act-bo", branch="main"), 403),
    (errors.ConstraintViolation("too old"), 400),
    (errors.Unauthenticated("who?"), 401),
    (errors.Denied("no"), 403),
    (errors.NotFound("where?"), 404),
    (errors.HistoricalVersionReclaimed("cleaned up"), 404),
    (errors.AlreadyExists("there is one"), 409),
    (MethodNotAllowed("not so"), 405),
    (errors.KeyConflict("node", "Person", "ada"), 409),
    (errors.MergeConflicts("both", [{"kind": "divergent_update"}]), 409),
    (errors.ReadSetChanged("head", "a", "b"), 409),
    (errors.ChangeDiffRefused("parentless_commit", "01K"), 409),
    (errors.ChangeFeedGap("01K"), 410),
    (errors.PreconditionFailed("a", "b"), 412),
    (errors.LimitExceeded("bytes", 1, 2), 413),
    (errors.BlobRangeError(5, 6, 4), 416),
    (errors.ExternalBlobUnavailable("s3://bucket/x", "gone"), 424),
    (errors.TooManyRequests("slow down"), 429),
    (errors.WriterBusy("branch/main", "somebody", 100), 503),
    (errors.RecoveryRequired("01K", "unfinished", "wait"), 503),
]


@pytest.mark.parametrize(("error", "status"), EXAMPLES, ids=lambda each: type(each).__name__)
def test_an_error_keeps_its_status_sentence_and_detail(error: OmnigraphError, status: int):
    assert status_of(error) == status
    envelope = envelope_of(error)
    assert ErrorEnvelope.from_dict(envelope).to_dict() == envelope
    back = error_of(status, envelope)
    assert type(back) is type(error)
    assert (back.message, back.hint) == (error.message, error.hint)
    assert back.envelope() == error.envelope()
    assert vars(back).keys() == vars(error).keys()
    if error.detail_key is not None or "details" in envelope:
        assert back.details == error.details


@pytest.mark.parametrize(("error", "status"), EXAMPLES, ids=lambda each: type(each).__name__)
def test_an_envelope_without_the_name_of_its_error_still_says_what_to_do(
    error: OmnigraphError, status: int
):
    back = error_of(status, error.envelope())
    assert status_of(back) == status
    assert (back.message, back.hint) == (error.message, error.hint)


def test_a_name_that_is_unknown_or_of_another_status_is_not_believed():
    for code in ("invented_later", "not_found", "root_moved", 7, None):
        back = error_of(400, {"error": "bad", "error_code": code})
        assert type(back) is errors.InputError


def test_an_unknown_outcome_keeps_the_operation_to_ask_about():
    back = error_of(500, envelope_of(errors.OutcomeUnknown("01K", "no answer")))
    assert type(back) is errors.OutcomeUnknown and back.details == {"operation_id": "01K"}


def test_what_is_not_ours_is_an_error_all_the_same():
    back = error_of(502, {})
    assert isinstance(back, errors.StorageError) and "502" in back.message
    assert isinstance(error_of(500, {"error": "oops", "code": "internal"}), errors.StorageError)


def test_an_unknown_error_is_500():
    assert status_of(errors.InternalError("bug")) == 500
    assert status_of(errors.PolicyEvaluationFailed("no answer")) == 500


def test_every_detail_of_an_error_is_part_of_the_envelope():
    keys = {error.detail_key for error, _ in EXAMPLES} - {None}
    assert keys <= {each.name for each in fields(ErrorEnvelope)}
