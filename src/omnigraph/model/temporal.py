"""Dates and date-times: texts in, `datetime` values and epoch numbers out, and back.

A Date is a `datetime.date`, stored as days since 1970-01-01. A DateTime is a UTC
`datetime.datetime` cut to milliseconds, stored as milliseconds since then. Both cover the years
1 to 9999, the years a four-digit text can name and every reader of the tables understands.

The texts are those of RFC 3339, with four leniencies: a space for the `T`, lower-case `t` and
`z`, no offset (which means UTC), and a date alone (which means its midnight). Where the RFC leaves
a choice:

- a fraction may have any number of digits and is cut after the third, which is the floor on both
  sides of 1970, because a fraction always counts forward from its second;
- second 60 is a leap second and is accepted in the last minute of a UTC day only. Epoch time has
  no number of its own for it, so it becomes the first second of the next day; its date stays;
- hour 24, an offset of 24 hours or more, an offset without a colon, and a time without seconds are
  not RFC 3339 and are refused. `-00:00` is UTC.
"""

from __future__ import annotations

import datetime as dt
import re

from omnigraph.errors import ValueConversionError

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_EPOCH_ORDINAL = EPOCH.toordinal()
_MILLISECOND = dt.timedelta(milliseconds=1)

DAYS_MIN = dt.date.min.toordinal() - _EPOCH_ORDINAL
DAYS_MAX = dt.date.max.toordinal() - _EPOCH_ORDINAL
MS_MIN = DAYS_MIN * 86_400_000
MS_MAX = (DAYS_MAX + 1) * 86_400_000 - 1

# The shape alone; which days a month has is left to `datetime`, which would accept other shapes.
_TEXT = re.compile(
    r"\d{4}-\d\d-\d\d"
    r"(?:[Tt ](?:[01]\d|2[0-3]):[0-5]\d:([0-5]\d|60)(?:\.\d+)?"
    r"(?:[Zz]|[+-](?:[01]\d|2[0-3]):[0-5]\d)?)?",
    re.ASCII,
)


def parse_date(text: str) -> dt.date:
    """The date of `YYYY-MM-DD`, or the UTC date of an RFC 3339 date-time."""
    try:
        moment, _ = _parse(text)
    except ValueError:
        raise ValueConversionError(f"invalid Date literal '{text}'") from None
    except OverflowError:
        raise ValueConversionError(f"Date value out of range: '{text}'") from None
    return moment.date()


def parse_datetime(text: str) -> dt.datetime:
    """The instant of an RFC 3339 text, in UTC, floored to milliseconds."""
    try:
        moment, leap_second = _parse(text)
        return moment + leap_second
    except (ValueError, OverflowError):
        raise ValueConversionError(f"invalid DateTime literal '{text}'") from None


_NO_LEAP_SECOND = dt.timedelta()
_LEAP_SECOND = dt.timedelta(seconds=1)


def _parse(text: str) -> tuple[dt.datetime, dt.timedelta]:
    """The instant with its leap second, if any, taken out and returned apart."""
    match = _TEXT.fullmatch(text)
    if match is None:
        raise ValueError
    if match[1] != "60":
        return _to_utc_ms(dt.datetime.fromisoformat(text.upper())), _NO_LEAP_SECOND
    before = _to_utc_ms(dt.datetime.fromisoformat(text.upper().replace(":60", ":59", 1)))
    if (before.hour, before.minute) != (23, 59):
        raise ValueError
    return before, _LEAP_SECOND


def date_from_days(days: int) -> dt.date:
    """The date that is ``days`` after 1970-01-01."""
    if not DAYS_MIN <= days <= DAYS_MAX:
        raise ValueConversionError(f"Date value out of range: {days}")
    return dt.date.fromordinal(days + _EPOCH_ORDINAL)


def datetime_from_ms(ms: int) -> dt.datetime:
    """The UTC instant that is ``ms`` milliseconds after 1970-01-01T00:00:00Z."""
    if not MS_MIN <= ms <= MS_MAX:
        raise ValueConversionError(f"invalid DateTime literal '{ms}'")
    return EPOCH + ms * _MILLISECOND


def epoch_days(date: dt.date) -> int:
    """Days from 1970-01-01 to ``date``."""
    return date.toordinal() - _EPOCH_ORDINAL


def epoch_ms(moment: dt.datetime) -> int:
    """Whole milliseconds from 1970-01-01T00:00:00Z to an aware ``moment``, floored."""
    return (moment - EPOCH) // _MILLISECOND


def to_utc_ms(moment: dt.datetime) -> dt.datetime:
    """``moment`` in the form values are kept in: UTC, floored to ms; without a zone it is UTC."""
    try:
        return _to_utc_ms(moment)
    except OverflowError:
        raise ValueConversionError(f"invalid DateTime literal '{moment}'") from None


def _to_utc_ms(moment: dt.datetime) -> dt.datetime:
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=dt.UTC)
    elif moment.tzinfo is not dt.UTC:
        moment = moment.astimezone(dt.UTC)
    beyond_ms = moment.microsecond % 1000
    return moment.replace(microsecond=moment.microsecond - beyond_ms) if beyond_ms else moment


def format_date(date: dt.date) -> str:
    """`YYYY-MM-DD`."""
    return date.isoformat()


def format_datetime(moment: dt.datetime) -> str:
    """`YYYY-MM-DDThh:mm:ss.mmmZ`, always three decimals and `Z`.

    >>> format_datetime(parse_datetime("2031-04-09 09:30:00+02:00"))
    '2031-04-09T07:30:00.000Z'
    """
    utc = moment.astimezone(dt.UTC).replace(tzinfo=None)
    return utc.isoformat(timespec="milliseconds") + "Z"
