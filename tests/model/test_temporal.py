"""Date and date-time texts: RFC 3339 as far as it goes, and the choices it leaves."""

from __future__ import annotations

import datetime as dt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.errors import ValueConversionError
from omnigraph.model.values import (
    DAYS_MAX,
    DAYS_MIN,
    MS_MAX,
    MS_MIN,
    date_from_days,
    datetime_from_ms,
    epoch_days,
    epoch_ms,
    format_date,
    format_datetime,
    parse_date,
    parse_datetime,
    to_utc_ms,
)

DAYS = st.integers(DAYS_MIN, DAYS_MAX)
MILLISECONDS = st.integers(MS_MIN, MS_MAX)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2031-04-09", "2031-04-09T00:00:00.000Z"),
        ("2031-04-09T07:30:00Z", "2031-04-09T07:30:00.000Z"),
        ("2031-04-09 07:30:00Z", "2031-04-09T07:30:00.000Z"),
        ("2031-04-09T07:30:00", "2031-04-09T07:30:00.000Z"),
        ("2031-04-09t07:30:00z", "2031-04-09T07:30:00.000Z"),
        ("2031-04-09T09:30:00+02:00", "2031-04-09T07:30:00.000Z"),
        ("2031-04-09T01:00:00-06:30", "2031-04-09T07:30:00.000Z"),
        ("2031-04-09T23:59:00+23:59", "2031-04-09T00:00:00.000Z"),
        ("2031-04-09T07:30:00-00:00", "2031-04-09T07:30:00.000Z"),
        ("2031-04-09T07:30:00.5Z", "2031-04-09T07:30:00.500Z"),
        ("2031-04-09T07:30:00.1239999999999Z", "2031-04-09T07:30:00.123Z"),
        ("0001-01-01T00:00:00Z", "0001-01-01T00:00:00.000Z"),
        ("9999-12-31T23:59:59.999Z", "9999-12-31T23:59:59.999Z"),
        ("2000-02-29", "2000-02-29T00:00:00.000Z"),
    ],
)
def test_c_sch_045_datetime_forms_and_offsets(text: str, expected: str) -> None:
    assert format_datetime(parse_datetime(text)) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "yesterday",
        "2031-4-9",
        "20310409",
        "2031-W15-3",
        "2031-04-31",
        "1900-02-29",
        "0000-01-01",
        "+2031-04-09",
        "12031-04-09",
        "2031-04-09T",
        "2031-04-09T07",
        "2031-04-09T07:30",
        "2031-04-09T07:30Z",
        "2031-04-09T073000Z",
        "2031-04-09T24:00:00Z",
        "2031-04-09T07:60:00Z",
        "2031-04-09T07:30:61Z",
        "2031-04-09T07:30:60Z",
        "2031-04-09T07:30:00.Z",
        "2031-04-09T07:30:00,5Z",
        "2031-04-09T07:30:00+24:00",
        "2031-04-09T07:30:00+02:60",
        "2031-04-09T07:30:00+0200",
        "2031-04-09T07:30:00+02",
        "2031-04-09T07:30:00 Z",
        "2031-04-09T07:30:00Z ",
        " 2031-04-09T07:30:00Z",
        "2031-04-09T07:30:00Z\n",
        "2031-04-09Z",
        "２０３１-04-09",
        "0001-01-01T00:00:00+00:01",
        "9999-12-31T23:59:59-00:01",
        "9999-12-31T23:59:60Z",
    ],
)
def test_c_sch_045_garbage_is_no_datetime(text: str) -> None:
    with pytest.raises(ValueConversionError) as caught:
        parse_datetime(text)
    assert caught.value.message == f"invalid DateTime literal '{text}'"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2031-04-09", "2031-04-09"),
        ("0001-01-01", "0001-01-01"),
        ("9999-12-31", "9999-12-31"),
        ("2031-04-09T23:30:00-01:00", "2031-04-10"),
        ("2031-04-09 00:30:00+01:00", "2031-04-08"),
        ("2031-04-09T23:30:00", "2031-04-09"),
        ("1969-12-31T23:59:59.9999Z", "1969-12-31"),
    ],
)
def test_c_sch_045_date_forms(text: str, expected: str) -> None:
    assert format_date(parse_date(text)) == expected


@pytest.mark.parametrize(
    "text", ["", "2031-13-01", "2031-02-29", "31-04-09", "2031-04-09T25:00:00Z"]
)
def test_c_sch_045_garbage_is_no_date(text: str) -> None:
    with pytest.raises(ValueConversionError) as caught:
        parse_date(text)
    assert caught.value.message == f"invalid Date literal '{text}'"


def test_utc_date_before_year_one_is_out_of_range() -> None:
    with pytest.raises(ValueConversionError, match="Date value out of range"):
        parse_date("0001-01-01T00:00:00+10:00")


def test_fraction_is_floored_on_both_sides_of_the_epoch() -> None:
    assert epoch_ms(parse_datetime("1970-01-01T00:00:00.0019Z")) == 1
    assert epoch_ms(parse_datetime("1969-12-31T23:59:59.9999Z")) == -1
    assert epoch_ms(parse_datetime("1969-12-31T23:59:59.9985Z")) == -2


def test_leap_second_becomes_the_next_second_and_keeps_its_date() -> None:
    # Both spellings are examples of RFC 3339, section 5.8.
    for text in ("1990-12-31T23:59:60Z", "1990-12-31T15:59:60-08:00"):
        assert format_datetime(parse_datetime(text)) == "1991-01-01T00:00:00.000Z"
        assert format_date(parse_date(text)) == "1990-12-31"
    assert parse_datetime("1990-12-31T23:59:60.25Z").microsecond == 250_000


@given(DAYS)
def test_days_round_trip_through_date_and_text(days: int) -> None:
    date = date_from_days(days)
    assert epoch_days(date) == days
    assert parse_date(format_date(date)) == date


@given(MILLISECONDS)
def test_c_sch_026_milliseconds_round_trip_through_datetime_and_text(ms: int) -> None:
    moment = datetime_from_ms(ms)
    assert epoch_ms(moment) == ms
    assert parse_datetime(format_datetime(moment)) == moment


@pytest.mark.parametrize("days", [DAYS_MIN - 1, DAYS_MAX + 1, 2**31 - 1, 2**40])
def test_days_outside_the_years_are_refused(days: int) -> None:
    with pytest.raises(ValueConversionError, match="Date value out of range"):
        date_from_days(days)


@pytest.mark.parametrize("ms", [MS_MIN - 1, MS_MAX + 1, 2**63 - 1, -(2**63)])
def test_milliseconds_outside_the_years_are_refused(ms: int) -> None:
    with pytest.raises(ValueConversionError, match=f"invalid DateTime literal '{ms}'"):
        datetime_from_ms(ms)


@given(st.datetimes(timezones=st.sampled_from([None, dt.UTC, dt.timezone(dt.timedelta(hours=-9))])))
def test_python_datetimes_become_utc_milliseconds(moment: dt.datetime) -> None:
    try:
        result = to_utc_ms(moment)
    except ValueConversionError:
        assert moment.year in (1, 9999)
        return
    assert result.tzinfo is dt.UTC
    zoned = moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)
    assert dt.timedelta(0) <= zoned - result < dt.timedelta(milliseconds=1)
