from __future__ import annotations

from mpwatch.observe.sources.observer import (
    CALM_POLL_S,
    CALM_S,
    PATIENCE,
    POLL_S,
    SOON_S,
    ReadInterval,
)


class Reader:
    """Reads whenever a reading is due; a reading takes only the cpu time that the test sets."""

    def __init__(self, period_s: float, cost_s: float = 0.0) -> None:
        self.now_s = 100.0
        self.times_s: list[float] = []
        self.interval = ReadInterval(period_s, lambda: self.now_s)
        self._cost_s = cost_s

    def go_on(self, seconds: float) -> None:
        end_s = self.now_s + seconds
        while self.now_s + self.interval.left_s < end_s:
            self.now_s += self.interval.left_s
            self.times_s.append(self.now_s)
            self.interval.has_read(self.now_s, self._cost_s)
        self.now_s = end_s

    @property
    def gaps_s(self) -> list[float]:
        return [
            round(later - earlier, 3)
            for earlier, later in zip(self.times_s, self.times_s[1:], strict=False)
        ]


def test_a_watch_begins_with_short_intervals_and_settles_to_its_period() -> None:
    reader = Reader(1.0)

    reader.go_on(5)

    assert reader.gaps_s == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0, 1.0]


def test_after_a_process_start_the_next_reading_is_early_and_the_period_returns() -> None:
    reader = Reader(1.0)
    reader.go_on(4.75)
    at_s = reader.now_s
    reader.times_s.clear()

    reader.interval.has_changed()
    reader.go_on(3)

    assert reader.times_s[0] - at_s <= SOON_S
    assert reader.gaps_s[:5] == [0.1, 0.2, 0.4, 0.8, 1.0]


def test_continuous_process_starts_do_not_shorten_the_shortest_interval() -> None:
    reader = Reader(1.0)

    for _ in range(300):
        reader.interval.has_changed()
        reader.go_on(0.01)

    assert min(reader.gaps_s) >= SOON_S - 0.01


def test_expensive_readings_are_early_only_within_their_cpu_budget() -> None:
    cost_s = 0.03
    reader = Reader(1.0, cost_s)

    for _ in range(300):
        reader.interval.has_changed()
        reader.go_on(0.01)

    assert min(reader.gaps_s) >= PATIENCE * cost_s - 0.01


def test_a_period_shorter_than_the_quick_gaps_is_kept() -> None:
    reader = Reader(0.05)

    reader.go_on(1)

    assert set(reader.gaps_s) == {0.05}


def test_a_reading_that_takes_longer_than_its_period_is_followed_by_a_rest() -> None:
    reader = Reader(1.0)
    reader.go_on(5)

    began_s = reader.now_s
    reader.now_s += 3.0
    reader.interval.has_read(began_s, 0.0)

    assert reader.interval.left_s == 0.25


def test_a_job_in_which_nothing_happens_is_calm_after_a_while_until_something_does() -> None:
    reader = Reader(1.0)
    reader.go_on(CALM_S - 1)
    assert not reader.interval.is_calm
    reader.go_on(1)
    assert reader.interval.is_calm

    reader.interval.has_changed()

    assert not reader.interval.is_calm
    reader.go_on(CALM_S)
    assert reader.interval.is_calm
    assert POLL_S < CALM_POLL_S <= 0.25
