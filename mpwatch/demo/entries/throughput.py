"""Part F: throughput."""

from __future__ import annotations

from mpwatch.demo.scenario import Scenario

SCENARIOS = (
    Scenario(
        name="loader-starvation",
        title="train faster than the workers can load",
        neighbour="loads samples that were decoded before",
        expected=("loader-starvation",),
        layer="stacks",
        shows_s=30,
        is_alone=True,
    ),
    Scenario(
        name="straggler-worker",
        title="wait for one slow worker while the others have long finished",
        neighbour="takes the batches in the order they come",
        expected=("straggler-worker",),
        also=("loader-starvation",),
        layer="stacks",
        shows_s=20,
    ),
    Scenario(
        name="cpu-oversubscription",
        title="give every worker a pool of threads on too few cores",
        neighbour="one thread a worker, and a trainer that takes its time",
        expected=("cpu-oversubscription",),
        also=("loader-starvation",),
        shows_s=15,
        is_alone=True,
    ),
    Scenario(
        name="cpu-affinity-collapse",
        title="run all workers on the one core the main process was bound to",
        neighbour="leaves the cores as they are, and takes its time",
        expected=("cpu-affinity-collapse",),
        also=("loader-starvation", "cpu-oversubscription"),
        shows_s=15,
        is_alone=True,
    ),
    Scenario(
        name="bottleneck-process",
        title="keep the statistics of all workers in the dict of one Manager",
        neighbour="each worker counts for itself and reports now and then",
        expected=("bottleneck-process",),
        layer="stacks",
        shows_s=25,
        is_alone=True,
    ),
    Scenario(
        name="gil-bound-threads",
        title="tokenize in four Python threads, of which one at a time can run",
        neighbour="the threads call operations that let go of the interpreter",
        expected=("gil-bound-threads",),
        layer="stacks",
        shows_s=15,
        is_alone=True,
    ),
)
