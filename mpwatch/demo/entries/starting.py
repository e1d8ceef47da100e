"""Part B: start methods and pickling."""

from __future__ import annotations

from mpwatch.demo.scenario import Scenario

SCENARIOS = (
    Scenario(
        name="spawn-unpicklable-object",
        title="pass a dataset with a lambda deep inside to spawned workers",
        neighbour="uses a function of the module instead of the lambda",
        expected=("spawn-unpicklable-object",),
        layer="hook",
    ),
    Scenario(
        name="python314-forkserver-default",
        title="run a program written for fork where forkserver is the default",
        neighbour="uses a function that can be pickled",
        expected=("python314-forkserver-default",),
        also=("spawn-unpicklable-object",),
        layer="hook",
        needs=("python>=3.14",),
    ),
    Scenario(
        name="start-method-inheritance",
        title="use a DataLoader in a spawned process, whose workers are then spawned too",
        neighbour="gives the loader its start method",
        expected=("start-method-inheritance",),
    ),
    Scenario(
        name="no-main-guard",
        title="start a spawned process from a script without a main guard",
        neighbour="has a main guard",
        expected=("no-main-guard",),
        also=("worker-exited-unexpectedly",),
        layer="stacks",
    ),
    Scenario(
        name="main-not-importable",
        title="spawn a function of a program that has no file",
        neighbour="is run as a file",
        expected=("main-not-importable",),
        also=("worker-exited-unexpectedly",),
        layer="hook",
    ),
    Scenario(
        name="pool-from-stdin",
        title="spawn a Pool from a program read from standard input",
        neighbour="is run as a file",
        expected=("main-not-importable",),
        also=(
            "worker-exited-unexpectedly",
            "pool-hang-after-worker-death",
            "spawn-startup-cost",
        ),
        shows_s=20,
    ),
    Scenario(
        name="context-already-set",
        title="set the start method a second time",
        neighbour="uses a context of its own instead of setting the default",
        expected=("context-already-set",),
        layer="hook",
    ),
    Scenario(
        name="semlock-cross-context",
        title="give a spawned process a queue made for forked ones",
        neighbour="creates queue and process from one context",
        expected=("semlock-cross-context",),
        layer="hook",
    ),
    Scenario(
        name="nested-daemonic",
        title="use a DataLoader with workers inside a Pool worker",
        neighbour="uses no DataLoader workers inside the Pool",
        expected=("nested-daemonic",),
        layer="hook",
    ),
    Scenario(
        name="spawn-startup-cost",
        title="start new spawned workers for each short epoch",
        neighbour="keeps the workers from epoch to epoch",
        expected=("spawn-startup-cost",),
        also=("loader-starvation",),
        shows_s=15,
    ),
    Scenario(
        name="spawn-join-false-lost-semaphores",
        title="delete a queue before the spawned process that needs it has started up",
        neighbour="keeps the queue until the process has exited",
        expected=("spawn-join-false-lost-semaphores",),
        also=("worker-exited-unexpectedly",),
        layer="hook",
    ),
)
