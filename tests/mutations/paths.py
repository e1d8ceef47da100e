"""Files of the hook and names of its tests."""

from __future__ import annotations

GUEST = "tests/integration/hook/test_guest.py::"
FROZEN = "tests/integration/hook/test_disks.py::"
CLOSED = "tests/integration/hook/test_closed_descriptors.py::"
BAD = "tests/integration/hook/test_bad_input.py::"
ENTERING = "tests/integration/hook/test_attaching.py::"
ENDS = "tests/integration/hook/test_process_exits.py::"
LOST = "tests/integration/hook/test_lost_events.py::"
REFUSED = "tests/integration/hook/test_refused_forks.py::"
FORKS = "tests/integration/hook/test_forks.py::"
SAME = (
    "tests/integration/hook/test_sameness.py::"
    "test_a_program_prints_raises_and_ends_the_same_with_the_hook_and_without"
)
TENSORS = "tests/integration/hook/test_tensors.py::"
UNIT = "tests/unit/hook/"
ALONE = UNIT + "points/test_points_alone.py::"
HOOK = "mpwatch/hook/"

COST = GUEST + "test_a_hook_without_an_observer_has_two_descriptors_and_one_hidden_thread"
IDENTITY = GUEST + "test_uninstrument_restores_every_object_and_closes_everything"
RUN = "tests/integration/hook/test_run.py"
STORM = FORKS + "test_with_many_forks_no_child_hangs_and_no_record_is_in_another_ring"
RUNTIME_DIR = UNIT + "transport/test_runtime_dir.py"
