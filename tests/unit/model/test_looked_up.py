"""What is asked of a moment's processes again and again is looked through once."""

from __future__ import annotations

import gc
from dataclasses import replace

from mpwatch.model import snapshot as module
from tests.unit.diagnose.worlds import gone, main, pid, process, world


def test_who_lives_is_found_out_once_for_a_moment_and_again_for_the_next() -> None:
    moment = world(main(), process(2), replace(process(3), ended=gone(3)))

    assert [each.pid for each in moment.living()] == [main().pid, 2]
    assert moment.living() is moment.living()
    assert replace(moment, log_dropped=3).living() is moment.living()

    later = world(main(), process(2))
    assert [each.pid for each in later.living()] == [main().pid, 2]
    assert later.living() is not moment.living()


def test_a_process_is_found_by_its_identity_and_the_first_of_two_wins() -> None:
    first, second = process(2), replace(process(2), label="another")
    moment = world(main(), first, second)

    assert moment.get(pid(2)) is first
    assert moment.get(pid(77)) is None
    assert moment.get(None) is None


def test_only_the_last_moment_asked_about_is_held() -> None:
    for number in range(5):
        world(main(), process(number + 2)).living()
    gc.collect()

    assert len(module._index.processes) == 2
    assert module._index.processes[1].pid == 6
