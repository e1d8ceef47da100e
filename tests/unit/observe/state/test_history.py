from __future__ import annotations

import gc

from msgspec.structs import replace

from mpwatch.model.history import Point, rise
from mpwatch.model.host import FilesKey, NewFiles
from mpwatch.model.samples import (
    GpuProcessSample,
    GpuSample,
    MemorySample,
    ThreadSample,
    WaitedOn,
)
from mpwatch.observe.state.history import POINTS_KEPT, TREND_POINTS, HistoryKeeper
from tests.builders.samples import MAIN, WORKER_0, WORKER_1, job, sample, tree


def test_a_series_grows_with_each_reading() -> None:
    keeper = HistoryKeeper()
    for second, used in enumerate((20, 22, 24)):
        keeper.add(tree(float(second), sample(MAIN, float(second), fds=used)), (), {})

    points = keeper.history().of(MAIN, "fds")

    assert [(point.at_s, point.value) for point in points] == [(0, 20), (1, 22), (2, 24)]


def test_the_missing_descriptors_of_an_exiting_process_add_no_point() -> None:
    keeper = HistoryKeeper()
    for second, used in enumerate((12, 12, 0)):
        keeper.add(tree(float(second), sample(MAIN, float(second), fds=used)), (), {})

    assert [point.value for point in keeper.history().of(MAIN, "fds")] == [12, 12]


def test_a_sample_that_is_the_same_at_later_readings_adds_its_points_again() -> None:
    once, anew = HistoryKeeper(), HistoryKeeper()
    idle = replace(sample(MAIN, 0.0, fds=20), main_read_bytes=7, written_bytes=9)
    children = (1, 1, 2, 2)
    for second, count in enumerate(children):
        at_s = float(second)
        workers = [
            replace(sample(each, at_s), parent_pid=MAIN.pid)
            for each in (WORKER_0, WORKER_1)[:count]
        ]
        numbers = {MAIN: {"cpu_percent": 0.0, "shm_bytes": 4096}}
        once.add(tree(at_s, idle, *workers), (), numbers)  # type: ignore[arg-type]
        anew.add(tree(at_s, replace(idle, at_s=at_s), *workers), (), numbers)  # type: ignore[arg-type]

    past = once.history()

    assert [tuple(each) for each in past.of(MAIN, "fds")] == [(n, 20) for n in range(4)]
    assert [each.value for each in past.of(MAIN, "children")] == list(children)
    assert {key: list(track) for key, track in past.processes.items()} == {
        key: list(track) for key, track in anew.history().processes.items()
    }


def test_heap_threads_and_files_of_the_job_are_remembered() -> None:
    keeper = HistoryKeeper()
    for second in range(3):
        at_s = float(second)
        memory = MemorySample(anon_bytes=10 + second, virtual_bytes=90 + second // 2)
        read = replace(sample(MAIN, at_s), memory=memory, thread_count=second + 8)
        seen = tree(at_s, read)
        files = replace(
            seen.host,
            new_files=(
                NewFiles(4 + second, 0, "", FilesKey("/dev/shm", "psm_*")),
                *((NewFiles(9, 0, "", FilesKey("/tmp", "tmp*")),) if second != 1 else ()),
            ),
        )
        keeper.add(replace(seen, host=files), (), {})

    past = keeper.history()

    assert [point.value for point in past.of(MAIN, "anon_bytes")] == [10, 11, 12]
    assert list(past.of(MAIN, "virtual_bytes")) == [Point(0.0, 90), Point(2.0, 91)]
    assert [point.value for point in past.of(MAIN, "threads")] == [9, 10]
    assert [(point.at_s, point.value) for point in past.of(MAIN, "few_threads")] == [(0.0, 8)]
    blocks, others = (
        past.files[FilesKey(*key)] for key in (("/dev/shm", "psm_*"), ("/tmp", "tmp*"))
    )
    assert [point.value for point in blocks] == [4, 5, 6]
    assert [point.value for point in others] == [9], "they were gone in between"


def test_reads_of_a_socket_are_remembered_from_the_first_one_on() -> None:
    keeper = HistoryKeeper()
    reads = WaitedOn("socket-read", "read", ("socket:[7]",))
    for second, wait in enumerate((None, reads, None, reads)):
        at_s = float(second)
        threads = (ThreadSample(MAIN.pid, "python", "S", 0, waits_on=wait),)
        keeper.add(tree(at_s, sample(MAIN, at_s, threads=threads)), (), {})

    past = keeper.history()

    assert [tuple(point) for point in past.of(MAIN, "answer_wait")] == [(1, 1), (2, 0), (3, 1)]


def test_a_reading_in_which_main_has_read_nothing_more_is_no_point() -> None:
    keeper = HistoryKeeper()
    for second, count in enumerate((None, 7, 7, 9, 9)):
        at_s = float(second)
        read = replace(sample(MAIN, at_s), main_read_bytes=count)
        keeper.add(tree(at_s, read), (), {})

    past = keeper.history()

    assert [tuple(point) for point in past.of(MAIN, "main_read_bytes")] == [(1, 7), (3, 9)]


def test_bytes_read_are_a_point_of_resource_trackers_always_and_of_others_after_a_mebibyte() -> (
    None
):
    keeper = HistoryKeeper()
    for second, count in enumerate((99, 5000, 1 << 21, (1 << 21) + 7)):
        tracker = replace(sample(WORKER_0, second, role="resource-tracker"), read_bytes=37)
        own = replace(sample(MAIN, second), read_bytes=count, written_bytes=None)
        keeper.add(tree(second, own, tracker), (), {})

    past = keeper.history()

    assert [point.value for point in past.of(WORKER_0, "read_bytes")] == [37] * 4
    assert [point.value for point in past.of(MAIN, "read_bytes")] == [99, 1 << 21]
    assert list(past.of(MAIN, "written_bytes")) == []


def test_the_rise_of_a_series_is_that_of_its_points() -> None:
    keeper = HistoryKeeper()
    for second, used in enumerate((20, 29, 24)):
        keeper.add(tree(float(second), sample(MAIN, float(second), fds=used)), (), {})
    kept = keeper.history().of(MAIN, "fds")

    assert rise(kept) == rise(list(kept)) == 4
    assert rise(kept, 0.5) == rise(list(kept), 0.5) == -5
    assert rise(kept, within_s=1.0) == rise(list(kept), within_s=1.0) == -5
    assert rise(keeper.history().of(WORKER_0, "fds")) == rise(kept[:0]) == 0


def test_readings_in_quick_succession_add_one_point() -> None:
    keeper = HistoryKeeper()
    for at_s in (1.0, 1.1, 1.3, 1.5, 2.0, 1.0):
        keeper.add(tree(at_s, sample(MAIN, at_s)), (), {})

    times = [point.at_s for point in keeper.history().of(MAIN, "fds")]

    assert times == [1.0, 1.5, 2.0, 1.0]


def test_a_full_series_is_thinned_in_its_older_half_and_keeps_its_beginning() -> None:
    keeper = HistoryKeeper()
    for second in range(POINTS_KEPT * 3):
        keeper.add(tree(float(second), sample(MAIN, float(second))), (), {})

    times = [point.at_s for point in keeper.history().of(MAIN, "fds")]

    assert len(times) <= POINTS_KEPT
    assert times == sorted(times)
    assert times[0] == 0.0
    assert times[-5:] == [float(POINTS_KEPT * 3 - n) for n in (5, 4, 3, 2, 1)]


def test_values_that_were_not_read_add_no_point() -> None:
    keeper = HistoryKeeper()
    keeper.add(job(1.0), (), {MAIN: {"cpu_percent": None}})

    assert list(keeper.history().of(MAIN, "cpu_percent")) == []
    assert list(keeper.history().of(MAIN, "private_bytes")) == []
    assert keeper.history().of(MAIN, "children")[0].value == 2


def test_trends_are_the_last_values_and_empty_for_an_unknown_process() -> None:
    keeper = HistoryKeeper()
    for second in range(100):
        keeper.add(tree(float(second), sample(MAIN, float(second), fds=second)), (), {})

    assert keeper.trends(MAIN).fds[-1] == 99
    assert len(keeper.trends(MAIN).fds) == TREND_POINTS
    assert keeper.trends(WORKER_0).fds == ()


def test_nothing_is_kept_of_a_forgotten_process() -> None:
    keeper = HistoryKeeper()
    keeper.add(job(1.0), (), {})
    keeper.forget(WORKER_0)

    assert list(keeper.history().of(WORKER_0, "fds")) == []
    assert len(keeper.history().of(MAIN, "fds")) == 1


def test_no_point_is_kept_as_an_object_of_its_own() -> None:
    def points() -> int:
        return sum(type(each) is Point for each in gc.get_objects())

    before, keeper = points(), HistoryKeeper()
    for second in range(100):
        keeper.add(job(float(second)), (), {})

    assert len(keeper.history().of(MAIN, "fds")) == 100
    assert points() <= before


def test_a_history_stays_as_it_is_while_the_series_continue_and_are_thinned() -> None:
    keeper = HistoryKeeper()
    for second in range(POINTS_KEPT):
        keeper.add(tree(float(second), sample(MAIN, float(second), fds=second + 1)), (), {})
    history = keeper.history()
    before = list(history.of(MAIN, "fds"))
    host_before = list(history.of_host("zombies"))

    for second in range(POINTS_KEPT, 3 * POINTS_KEPT):
        keeper.add(tree(float(second), sample(MAIN, float(second))), (), {})
    keeper.forget(MAIN)

    assert list(history.of(MAIN, "fds")) == before
    assert list(history.of_host("zombies")) == host_before
    assert len(before) == POINTS_KEPT
    assert keeper.history().of(MAIN, "fds") == ()


def test_numbers_that_follow_from_more_than_the_reading_are_added_with_it() -> None:
    keeper = HistoryKeeper()
    for second in range(10):
        keeper.add(job(float(second)), (), {MAIN: {"cpu_percent": float(second)}})

    assert [p.value for p in keeper.history().of(MAIN, "cpu_percent")] == [*range(10)]


def test_the_memory_of_a_process_on_all_gpus_is_remembered() -> None:
    keeper = HistoryKeeper()
    for second in range(2):
        at_s, number = float(second), MAIN.pid
        uses = [
            (
                GpuProcessSample(number, 5 + second),
                GpuProcessSample(number, 5 + second, "graphics"),
                GpuProcessSample(WORKER_0.pid, None),
            ),
            (GpuProcessSample(number, 2), GpuProcessSample(999_999, 70)),
        ]
        gpus = tuple(GpuSample(n, "H100", f"GPU-{n}", processes=u) for n, u in enumerate(uses))
        job_now = tree(at_s, sample(MAIN, at_s), sample(WORKER_0, at_s))
        keeper.add(replace(job_now, gpus=gpus), (), {})

    past = keeper.history()

    assert [point.value for point in past.of(MAIN, "gpu_bytes")] == [7, 8]
    assert not past.of(WORKER_0, "gpu_bytes"), "the driver does not say how much"
