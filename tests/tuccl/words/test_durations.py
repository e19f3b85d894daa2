import pytest

from tuccl.errors import UsageError
from tuccl.words.durations import format_about, format_elapsed, format_seconds, parse_seconds


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.25, "0.25 s"), (34.4, "34 s"), (599, "599 s"), (720, "12 min"), (12600, "3.5 h")],
)
def test_seconds_for_people(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.2, "1 s"), (7.4, "7 s"), (89.0, "89 s"), (90.0, "2 min"), (5400.0, "1.5 h")],
)
def test_seconds_for_people_who_wait(seconds: float, text: str) -> None:
    assert format_about(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.2, "1 s"),
        (59.4, "59 s"),
        (59.6, "1 min 0 s"),
        (245.0, "4 min 5 s"),
        (5400.0, "1 h 30 min"),
    ],
)
def test_what_has_passed(seconds: float, text: str) -> None:
    assert format_elapsed(seconds) == text


def test_the_message_names_what_the_duration_is_of() -> None:
    assert parse_seconds("20m", "--budget") == 1200.0
    assert parse_seconds("28335.6us") == pytest.approx(0.0283356), "as jobs print their steps"
    for text in ("soon", "-1s", "0", "8000h", "1d", ""):
        with pytest.raises(UsageError, match=r"^--budget"):
            parse_seconds(text, "--budget")
