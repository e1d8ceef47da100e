"""Part A: how tensors get from one process to another."""

from __future__ import annotations

from mpwatch.demo.scenario import Scenario

SCENARIOS = (
    Scenario(
        name="fd-exhaustion-receiver",
        title="collect the labels of every batch until file descriptors run out",
        expected=("fd-exhaustion-receiver",),
        damage_s=35,
        ends="in `Too many open files` after about 40 s",
    ),
    Scenario(
        name="shm-full-enospc",
        title="keep every batch until a /dev/shm of 48 MiB is full",
        expected=("shm-full-enospc",),
        damage_s=24,
        ends="in `unable to allocate shared memory` after about 30 s",
        needs=("mount",),
        memory_mib=60,
    ),
)
