"""Files of the hook and names of its tests."""

from __future__ import annotations

GUEST = "tests/integration/hook/test_guest.py::"
FROZEN = "tests/integration/hook/test_disks.py::"
BAD = "tests/integration/hook/test_bad_input.py::"
ENTERING = "tests/integration/hook/test_entering.py::"
ENDS = "tests/integration/hook/test_ends.py::"
LOST = "tests/integration/hook/test_lost.py::"
REFUSED = "tests/integration/hook/test_refused.py::"
FORKS = "tests/integration/hook/test_forks.py::"
SAME = (
    "tests/integration/hook/test_sameness.py::"
    "test_a_program_prints_raises_and_ends_the_same_with_the_hook_and_without"
)
TENSORS = "tests/integration/hook/test_tensors.py::"
UNIT = "tests/unit/hook/"
HOOK = "mpwatch/hook/"

COST = GUEST + "test_a_hook_that_nobody_visits_takes_two_descriptors_and_one_invisible_thread"
IDENTITY = GUEST + "test_uninstrument_restores_every_object_and_closes_everything"
RUN = "tests/integration/hook/test_run.py"
STORM = FORKS + "test_in_a_storm_of_forks_no_child_hangs_and_no_record_goes_astray"
RUNTIME_DIR = UNIT + "test_runtime_dir.py"
