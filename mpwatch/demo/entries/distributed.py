"""Part I: torch.distributed and its launchers."""

from __future__ import annotations

from mpwatch.demo.scenario import Scenario

SCENARIOS = (
    Scenario(
        name="rank-stuck-in-collective",
        title="keep all ranks waiting for one that writes a checkpoint",
        neighbour="the checkpoint takes two seconds",
        expected=("rank-stuck-in-collective",),
        layer="stacks",
        shows_s=20,
    ),
    Scenario(
        name="collective-mismatch",
        title="call different collectives on different ranks",
        neighbour="all ranks call the same one",
        expected=("collective-mismatch",),
        also=("rank-stuck-in-collective",),
        layer="stacks",
        shows_s=20,
        memory_mib=80,
    ),
    Scenario(
        name="torchrun-root-cause-misread",
        title="lose one rank under torchrun, which then ends the others",
        neighbour="no rank is killed",
        expected=("torchrun-root-cause-misread",),
        also=("worker-exited-unexpectedly",),
        damage_s=7,
        ends="in ChildFailedError",
    ),
    Scenario(
        name="torchrun-agent-killed-orphans",
        title="kill torchrun, whose ranks then continue",
        neighbour="stops torchrun with SIGTERM",
        expected=("torchrun-agent-killed-orphans",),
        also=("orphaned-workers", "worker-exited-unexpectedly"),
        damage_s=6,
    ),
    Scenario(
        name="torchrun-sighup",
        title="run torchrun in a terminal, where closing the window ends the training",
        neighbour="torchrun does not handle SIGHUP, under nohup",
        expected=("torchrun-sighup",),
    ),
    Scenario(
        name="store-port-in-use",
        title="start a job on a port where an earlier one still listens",
        neighbour="uses a port that is free",
        expected=("store-port-in-use",),
    ),
    Scenario(
        name="nccl-shm-enospc",
        title="start NCCL where /dev/shm is full",
        expected=("nccl-shm-enospc",),
        not_runnable="needs an NVIDIA GPU and NCCL",
    ),
    Scenario(
        name="elastic-agent-wedged",
        title="wait for a rank that cannot be killed",
        expected=("elastic-agent-wedged",),
        not_runnable="needs a device or a file system that holds a process in state D",
    ),
)
