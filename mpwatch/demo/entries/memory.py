"""Part E: memory that grows."""

from __future__ import annotations

from mpwatch.demo.scenario import Scenario

SCENARIOS = (
    Scenario(
        name="copy-on-write-growth",
        title="read a large list of Python objects in forked workers",
        expected=("copy-on-write-growth",),
        shows_s=20,
        memory_mib=300,
    ),
    Scenario(
        name="persistent-workers-leak",
        title="cache decoded samples in workers that live as long as the training",
        expected=("persistent-workers-leak",),
        shows_s=25,
        memory_mib=260,
    ),
    Scenario(
        name="prefetch-memory-blowup",
        title="let workers run twenty batches ahead",
        expected=("prefetch-memory-blowup",),
        memory_mib=200,
    ),
    Scenario(
        name="loader-iterator-leak",
        title="make a new iterator for every look at the data and keep them all",
        expected=("loader-iterator-leak",),
        shows_s=15,
        memory_mib=150,
    ),
    Scenario(
        name="compile-worker-pool",
        title="compile a function and keep the pool of compilers",
        expected=("compile-worker-pool",),
        memory_mib=250,
    ),
)
