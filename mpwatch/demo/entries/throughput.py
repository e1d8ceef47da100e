"""Part F: throughput."""

from __future__ import annotations

from mpwatch.demo.scenario import Scenario

SCENARIOS = (
    Scenario(
        name="loader-starvation",
        title="train faster than the workers can load",
        expected=("loader-starvation",),
        layer="stacks",
        shows_s=30,
        is_alone=True,
    ),
    Scenario(
        name="straggler-worker",
        title="wait for one slow worker while the others have long finished",
        expected=("straggler-worker",),
        also=("loader-starvation",),
        layer="stacks",
        shows_s=20,
    ),
    Scenario(
        name="cpu-oversubscription",
        title="give every worker a pool of threads on too few cores",
        expected=("cpu-oversubscription",),
        also=("loader-starvation",),
        shows_s=15,
        is_alone=True,
    ),
    Scenario(
        name="cpu-affinity-collapse",
        title="run all workers on the one core the main process was bound to",
        expected=("cpu-affinity-collapse",),
        also=("loader-starvation", "cpu-oversubscription"),
        shows_s=15,
        is_alone=True,
    ),
    Scenario(
        name="gil-bound-threads",
        title="tokenize in four Python threads, of which one at a time can run",
        expected=("gil-bound-threads",),
        layer="stacks",
        shows_s=15,
        is_alone=True,
    ),
)
