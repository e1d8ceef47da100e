"""Part G: silently wrong results."""

from __future__ import annotations

from mpwatch.demo.scenario import Scenario

SCENARIOS = (
    Scenario(
        name="numpy-rng-identical",
        title="draw augmentations from one generator that every worker has a copy of",
        neighbour="creates the generator in each worker",
        expected=("numpy-rng-identical",),
        also=("loader-starvation",),
        layer="hook",
    ),
    Scenario(
        name="shared-file-offset",
        title="read in all workers from a file that was opened before the fork",
        neighbour="reads with pread, which needs no position",
        expected=("shared-file-offset",),
        also=("loader-starvation",),
    ),
    Scenario(
        name="hogwild-not-shared",
        title="train copies of a model whose share_memory() was forgotten",
        neighbour="shares the model",
        expected=("hogwild-not-shared",),
        layer="hook",
        shows_s=25,  # the first step of an optimizer imports half of torch
    ),
    Scenario(
        name="iterable-duplicates",
        title="iterate over a stream in several workers that each read all of it",
        neighbour="each worker takes its part of the stream",
        expected=("iterable-duplicates",),
        also=("loader-starvation",),
        layer="hook",
    ),
)
