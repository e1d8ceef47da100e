"""Part F: throughput."""

from __future__ import annotations

from mpwatch.demo.scenario import Scenario

SCENARIOS = (
    Scenario(
        name="loader-starvation",
        title="train faster than the workers can load",
        neighbour="loads samples that are decoded already",
        expected=("loader-starvation",),
        layer="stacks",
        shows_s=30,
        is_alone=True,
    ),
    Scenario(
        name="straggler-worker",
        title="wait for one slow worker while the others have long finished",
        neighbour="takes the batches in the order in which they finish",
        expected=("straggler-worker",),
        also=("loader-starvation",),
        layer="stacks",
        shows_s=20,
    ),
    Scenario(
        name="cpu-oversubscription",
        title="give every worker a pool of threads on too few cores",
        neighbour="uses one thread per worker, and a slow trainer",
        expected=("cpu-oversubscription",),
        also=("loader-starvation",),
        shows_s=15,
        is_alone=True,
    ),
    Scenario(
        name="cpu-affinity-collapse",
        title="run all workers on the one core to which main was bound",
        neighbour="uses all cores, and a slow trainer",
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
        neighbour="the threads call operators that release the interpreter lock",
        expected=("gil-bound-threads",),
        layer="stacks",
        shows_s=15,
        is_alone=True,
    ),
    Scenario(
        name="lock-contention",
        title="hold the lock of a result while computing it, in four processes",
        neighbour="takes the lock for the addition only",
        expected=("lock-contention",),
        also=("cpu-oversubscription",),
        layer="stacks",
        shows_s=25,
        is_alone=True,
    ),
    Scenario(
        name="pipeline-bottleneck",
        title="feed a learner from two actors that are far slower",
        neighbour="has fast actors and a large model",
        expected=("pipeline-bottleneck",),
        layer="stacks",
        shows_s=25,
        is_alone=True,
    ),
)
