"""A ring file that root cuts short while its process records as fast as it can."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import pytest

from mpwatch.collect.ring import read_ring
from mpwatch.hook import wire
from tests.integration.hook.client import Client
from tests.integration.hook.guest import Guest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root may cut short what is mapped"),
]
pytest.importorskip("torch")
ROUNDS = 100
SURVIVORS = 95
"""Between the look at the file and the store the kernel may give the core to whoever cuts it short.

That ended 1 process of 900 on two cores at a load of 6 to 8, and 2 of 300 that shared one core with
whoever cut their files short; with a look each 10 ms it was 106 of 180.
"""
WHOLE = wire.HEADER_BYTES + wire.DEFAULT_SLOTS * wire.RECORD_BYTES


def harm(path: Path, number: int) -> None:
    """Cut a file short, to nothing or to half; every other time put noise there; then remove it."""
    os.truncate(path, (number % 2) * WHOLE // 2)
    if number % 4 > 1:
        with open(path, "r+b") as file:
            file.write(random.Random(number).randbytes(WHOLE // 4))
    assert read_ring(str(path)).problems
    if number % 8 > 3:
        path.unlink()


def test_root_may_cut_short_the_ring_of_a_process_that_records_all_the_time(runtime: Path) -> None:
    chance = random.Random(7)
    survivors = 0
    number = 0
    while number < ROUNDS:
        with Guest("", program="hook_cut.py") as guest:
            while number < ROUNDS and guest.process.poll() is None:
                number += 1
                survivors += survives(guest, number, chance.uniform(0.001, 0.03))

    assert survivors >= SURVIVORS


def survives(guest: Guest, number: int, wait_s: float) -> bool:
    """Harm the file of a new hook; whether its process lives, which then has to say so."""
    guest.tell("")
    path = Path(guest.hear())
    time.sleep(wait_s)
    harm(path, number)
    harmed_ns = time.monotonic_ns()
    answer = guest.hear()
    if not answer:
        assert guest.process.wait(60) == -7
        return False
    assert answer == "lost"
    with Client(path.with_suffix(wire.SOCKET_SUFFIX)) as client:
        hello = client.hello()
        while not any(record[1] > harmed_ns for record in client.records):
            client.frame()
        while not any(note["kind"] == "ring-lost" for note in client.notes):
            client.frame()
    assert hello["ring"] is None
    assert hello["problems"] == ["ring: the ring file was cut short by somebody else"]
    return True
