"""Part E: memory that grows."""

from __future__ import annotations

from mpwatch.demo.scenario import Scenario

SCENARIOS = (
    Scenario(
        name="copy-on-write-growth",
        title="read a large list of Python objects in forked workers",
        neighbour="stores the samples in one numpy array",
        expected=("copy-on-write-growth",),
        shows_s=20,
        memory_mib=300,
    ),
    Scenario(
        name="persistent-workers-leak",
        title="cache decoded samples in workers that live as long as the training",
        neighbour="bounds the cache",
        expected=("persistent-workers-leak",),
        shows_s=35,
        memory_mib=300,
    ),
    Scenario(
        name="prefetch-memory-blowup",
        title="prefetch twenty batches in each worker",
        neighbour="prefetches two batches a worker",
        expected=("prefetch-memory-blowup",),
        memory_mib=200,
    ),
    Scenario(
        name="loader-iterator-leak",
        title="create a new iterator each time the data is read and keep them all",
        neighbour="keeps the data, not the iterators",
        expected=("loader-iterator-leak",),
        shows_s=15,
        memory_mib=150,
    ),
    Scenario(
        name="steady-growth",
        title="make a pipe for each request to a worker and close none of them",
        neighbour="closes the pipe after the answer",
        expected=("steady-growth",),
        shows_s=40,
    ),
    Scenario(
        name="compile-worker-pool",
        title="compile a function and keep the pool of compile workers",
        neighbour="shuts the pool down after the compilation",
        expected=("compile-worker-pool",),
        memory_mib=250,
    ),
)
