import pytest

from pipeline import clean


def make(n, every):
    return [{"site": f"site-{i % 7}", "sensor": f"t{i:05d}", "value": None if i % every == 0 else str(i)} for i in range(n)]


def test_keeps_complete_records():
    assert len(clean(make(100, 1000))) == 99


@pytest.mark.parametrize("every", [2, 3, 5])
def test_drops_records_without_value(every):
    records = make(600, every)
    assert len(clean(records)) == sum(r["value"] is not None for r in records)


def test_values_are_numbers():
    assert all(isinstance(r["value"], float) for r in clean(make(50, 7)))
