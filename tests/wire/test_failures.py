"""Errors there and back again."""

from __future__ import annotations

import pytest

from omnigraph import errors
from omnigraph.errors import OmnigraphError
from omnigraph.wire.failures import ErrorEnvelope, MethodNotAllowed, error_of, status_of

EXAMPLES: list[tuple[OmnigraphError, int]] = [
    (errors.InputError("bad", hint="do better"), 400),
    (errors.QueryParseError("bad"), 400),
    (errors.ChangeCursorRejected("bad"), 400),
    (errors.Unauthenticated("who?"), 401),
    (errors.Denied("no"), 403),
    (errors.NotFound("where?"), 404),
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
    envelope = error.envelope()
    ErrorEnvelope.model_validate(envelope)
    back = error_of(status, envelope)
    assert status_of(back) == status
    assert (back.message, back.hint) == (error.message, error.hint)
    if error.detail_key is not None:
        assert type(back) is type(error)
        assert back.details == error.details


def test_what_is_not_ours_is_an_error_all_the_same():
    back = error_of(502, {})
    assert isinstance(back, errors.StorageError) and "502" in back.message
    assert isinstance(error_of(500, {"error": "oops", "code": "internal"}), errors.StorageError)


def test_an_unknown_error_is_500():
    assert status_of(errors.InternalError("bug")) == 500
    assert status_of(errors.PolicyEvaluationFailed("no answer")) == 500


def test_every_detail_of_an_error_is_part_of_the_envelope():
    keys = {error.detail_key for error, _ in EXAMPLES} - {None}
    assert keys <= ErrorEnvelope.model_fields.keys()
