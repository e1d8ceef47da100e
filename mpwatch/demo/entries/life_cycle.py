"""Part D: how processes end."""

from __future__ import annotations

from mpwatch.demo.scenario import Scenario

SCENARIOS = (
    Scenario(
        name="worker-oom-killed",
        title="decode ever larger samples until the kernel kills a worker for memory",
        expected=("worker-oom-killed",),
        also=("persistent-workers-leak", "sigchld-raises-anywhere", "loader-starvation"),
        damage_s=22,
        ends="in `exited unexpectedly`, caused by `killed by signal: Killed`",
        needs=("cgroup",),
        memory_mib=220,
    ),
    Scenario(
        name="worker-segfault",
        title="crash in native code in a worker",
        expected=("worker-segfault",),
        also=("sigchld-raises-anywhere", "loader-starvation"),
        damage_s=5,
        ends="in `exited unexpectedly`, caused by `killed by signal: Segmentation fault`",
    ),
    Scenario(
        name="worker-exited-unexpectedly",
        title="leave a worker with os._exit in the middle of an epoch",
        expected=("worker-exited-unexpectedly",),
        also=("sigchld-raises-anywhere", "loader-starvation"),
        damage_s=5,
        ends="in `exited unexpectedly`",
    ),
    Scenario(
        name="sigchld-raises-anywhere",
        title="fail in an innocent line because a worker has died",
        expected=("sigchld-raises-anywhere",),
        also=("worker-segfault",),
        layer="hook",
        damage_s=6,
        ends="in `killed by signal: Aborted`, raised in the optimizer's line",
    ),
    Scenario(
        name="pin-memory-thread-death",
        title="lose the thread that pins batches to a full descriptor table",
        expected=("pin-memory-thread-death",),
        also=("fd-exhaustion-receiver",),
        layer="hook",  # from outside the thread's end and main's own are a quarter second apart
        damage_s=13,
        ends="in `Pin memory thread exited unexpectedly`",
    ),
    Scenario(
        name="orphaned-workers",
        title="workers survive a main process that was killed",
        expected=("orphaned-workers",),
        damage_s=6,
        ends="6 s after `ready` the main process is killed, 40 s later the workers are ended",
    ),
    Scenario(
        name="zombie-processes",
        title="start a tool for every batch and never ask how it ended",
        expected=("zombie-processes",),
        shows_s=15,
    ),
    Scenario(
        name="resource-tracker-leaks",
        title="kill the main process of a spawned job, whose semaphores stay",
        expected=("resource-tracker-leaks",),
        also=("orphaned-workers",),
        damage_s=6,
        ends="6 s after `ready` the main process is killed, 40 s later the worker is ended",
    ),
    Scenario(
        name="shared-memory-tracker-unlink",
        title="attach to shared memory from a program whose end removes it",
        expected=("shared-memory-tracker-unlink",),
        needs=("python<3.13",),
    ),
    Scenario(
        name="pids-limit",
        title="start workers until the container allows no further process",
        expected=("pids-limit",),
        also=("loader-iterator-leak",),
        damage_s=15,
        needs=("cgroup",),
        memory_mib=150,
    ),
)
