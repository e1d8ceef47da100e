from __future__ import annotations

import json
import random
from typing import Any

import pytest

from mpwatch.hook.checks.rng import note_states
from mpwatch.hook.session import Session

numpy = pytest.importorskip("numpy")


class Dataset:
    def __init__(self, generator: Any) -> None:
        self.generator = generator


def state_of(session: Session, generator: Any) -> str:
    note_states(session, Dataset(generator), 0)
    note = json.loads(session.notes.since(0)[-1][1])
    assert note["kind"] == "generators"
    return str(note["hashes"]["dataset.generator"])


@pytest.mark.parametrize(
    "make",
    [
        random.Random,
        numpy.random.RandomState,
        numpy.random.default_rng,
        lambda seed: numpy.random.RandomState(numpy.random.PCG64(seed)),
    ],
    ids=["random", "RandomState", "default_rng", "RandomState of PCG64"],
)
def test_a_generator_is_compared_by_its_state_alone(session: Session, make: Any) -> None:
    one, same, other = make(1), make(1), make(2)

    assert state_of(session, one) == state_of(session, same)
    assert state_of(session, one) != state_of(session, other)


class Device:
    def __init__(self, kind: str) -> None:
        self.type = kind


class State:
    """A stand-in for the tensor of a generator's state."""

    def numpy(self) -> State:
        return self

    def tobytes(self) -> bytes:
        return b"state"


@pytest.mark.parametrize(("device", "reads"), [("cpu", 1), ("cuda", 0), ("xpu", 0)])
def test_the_state_of_a_generator_of_a_gpu_is_not_read(
    session: Session, device: str, reads: int
) -> None:
    """Reading it waits for the GPU; a stand-in, since one of CUDA cannot be made without a GPU."""
    read: list[str] = []

    class Generator:
        def __init__(self) -> None:
            self.device = Device(device)

        def get_state(self) -> State:
            read.append(device)
            return State()

    Generator.__module__, Generator.__qualname__ = "torch._C", "Generator"
    note_states(session, Dataset(Generator()), 0)

    hashes = json.loads(session.notes.since(0)[-1][1])["hashes"]
    assert (len(read), "dataset.generator" in hashes) == (reads, bool(reads))


def test_a_drawn_number_and_a_cached_one_change_the_state(
    session: Session,
) -> None:
    generator = numpy.random.RandomState(1)
    seen = {state_of(session, generator)}
    for _ in range(2):  # normal() makes two numbers, and hands one out
        generator.normal()
        seen.add(state_of(session, generator))

    assert len(seen) == 3


def test_reading_a_generator_does_not_change_its_numbers(session: Session) -> None:
    looked_at, left_alone = numpy.random.RandomState(1), numpy.random.RandomState(1)
    state_of(session, looked_at)

    assert looked_at.rand() == left_alone.rand()
    assert looked_at.rand() == left_alone.rand()


@pytest.mark.skipif(
    numpy.lib.NumpyVersion(numpy.__version__) < "2.0.0", reason="this numpy cannot be listened to"
)
def test_no_array_of_words_is_written_out_as_text(session: Session) -> None:
    written: list[Any] = []

    def write(array: Any) -> str:
        written.append(array)
        return "an array"

    with numpy.printoptions(override_repr=write):
        state_of(session, numpy.random.RandomState(1))

    assert written == []
