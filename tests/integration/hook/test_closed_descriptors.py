"""The program closes the hook's descriptors; numbers that it reuses are not closed."""

from __future__ import annotations

import pytest

from tests.integration.hook.guest import Guest

pytestmark = pytest.mark.slow


def test_a_program_that_closed_all_descriptors_exits_without_a_message() -> None:
    with Guest("exit", program="hook_closed.py") as guest:
        assert guest.finish() == (0, "")


def test_a_descriptor_that_the_program_opened_with_the_same_number_stays_open() -> None:
    with Guest("fork", program="hook_closed.py") as guest:
        code, said = guest.finish()

    assert code == 0
    assert said.splitlines() == ["fd 3", *["exit code 0 threads 1"] * 3, "hello"]
