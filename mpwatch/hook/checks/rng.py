"""Random generators that a dataset brought along: equal states in two workers are a mistake."""

from __future__ import annotations

import sys
import zlib
from itertools import islice

from ..safe.exact import class_name, module_of_class
from .object_walk import walk

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..session import Session

LOOKED_AT = 300
DEPTH = 5
"""Objects of a dataset looked at, the nearest first: `dataset.transform.steps[0].rng` is four deep.
To look at one copies the page it lies on, where a worker was forked."""


def note_states(session: Session, dataset: Any, worker_id: int) -> None:
    """Note a hash of every generator's state, as a worker's first batch begins.

    `random`, torch and since 1.13 also numpy are seeded by torch for each worker; what the dataset
    itself holds is a copy of the parent's unless a `worker_init_fn` seeds it.
    """
    hashes = {}
    near = ((f"dataset{path}", part) for path, part in walk(dataset, DEPTH))
    for path, thing in [("random", sys.modules.get("random")), *islice(near, LOOKED_AT)]:
        state = _state_of(thing)
        if state is not None:
            hashes[path] = f"{zlib.crc32(state):08x}"
    numpy = sys.modules.get("numpy.random")
    if numpy is not None:
        hashes["numpy.random"] = f"{zlib.crc32(_words_of(numpy)):08x}"
    session.note(
        "generators", worker_id=worker_id, hashes=hashes, dataset=class_name(type(dataset))
    )


def _state_of(thing: Any) -> bytes | None:
    """The state of a generator as bytes, or `None` if it is none."""
    kind = f"{module_of_class(type(thing))}.{class_name(type(thing))}"
    if kind == "torch._C.Generator":
        if thing.device.type != "cpu":
            return None  # to read one of a GPU waits for the GPU
        return bytes(thing.get_state().numpy().tobytes())
    if kind == "numpy.random._generator.Generator":
        if not module_of_class(type(thing.bit_generator)).startswith("numpy.random."):
            return None  # the program's own, whose state is a property of its class
        return repr(thing.bit_generator.state).encode()
    if kind == "numpy.random.mtrand.RandomState":
        return _words_of(thing)
    if kind == "random.Random" or thing is sys.modules.get("random"):
        return repr(thing.getstate()).encode()
    return None


def _words_of(legacy: Any) -> bytes:
    """The state of one of numpy's older generators, of which `numpy.random` itself holds one.

    The words of a Mersenne Twister as they lie in memory: to write the array out as text took 3 ms
    of every worker's start, this takes 0.1.
    """
    state = legacy.get_state(legacy=False)
    key = state["state"].pop("key", None)
    return (b"" if key is None else key.tobytes()) + repr(state).encode()
