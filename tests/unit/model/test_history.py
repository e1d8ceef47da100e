from __future__ import annotations

from array import array

import pytest

from mpwatch.model.history import Point, Track, columns, first_at, since, values_of

POINTS = [Point(float(n), float(n * n)) for n in range(10)]


def track() -> Track:
    moments, values = array("d"), array("d")
    for point in POINTS:
        moments.append(point.at_s)
        values.append(point.value)
    return Track(moments, values)


def test_a_track_equals_its_points() -> None:
    assert list(track()) == POINTS
    assert len(track()) == len(POINTS)
    assert (track()[0], track()[-1]) == (POINTS[0], POINTS[-1])
    assert list(track()[2:7:2]) == POINTS[2:7:2]
    assert list(reversed(track())) == POINTS[::-1]
    assert not Track(array("d"), array("d"))


def test_functions_of_series_accept_tracks_and_points() -> None:
    for at_s in (-1.0, 0.0, 3.5, 4.0, 99.0):
        assert first_at(track(), at_s) == first_at(POINTS, at_s)
        assert list(since(track(), at_s)) == list(since(POINTS, at_s))
    assert list(values_of(track())) == list(values_of(POINTS))
    assert tuple(map(list, columns(track()))) == tuple(map(list, columns(POINTS)))


def test_a_whole_series_is_not_copied() -> None:
    whole = track()

    assert since(whole, 0.0) is whole


def test_a_track_is_a_copy_of_its_arrays_and_its_columns_are_read_only() -> None:
    moments, values = array("d", [1.0, 2.0]), array("d", [10.0, 20.0])
    made = Track(moments, values)
    moments.append(3.0)
    values.append(30.0)
    columns(made)[1][0] = 99.0  # type: ignore[index]

    assert list(made) == [Point(1.0, 10.0), Point(2.0, 20.0)]
    assert made[-1] == Point(2.0, 20.0)
    assert first_at(made, 3.0) == 2
    with pytest.raises(IndexError):
        made[2]
