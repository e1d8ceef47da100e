"""Random generators inside a dataset: equal states in two workers are a mistake."""

from __future__ import annotations

import binascii
import sys
from itertools import islice

from ..safe.exact import class_name, module_of_class
from . import load

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..context import Context

walk = load("object_walk").walk
LOOKED_AT = 300
DEPTH = 5
"""Objects of a dataset examined, nearest first: `dataset.transform.steps[0].rng` has depth four.
In a forked worker, reading an object copies its page."""


def note_states(session: Context, dataset: Any, worker_id: int) -> None:
    """Note a hash of each generator's state before the first batch of a worker.

    Torch seeds `random`, itself and since 1.13 also numpy in each worker; generators inside the
    dataset are copies of the parent's unless a `worker_init_fn` seeds them.
    """
    hashes = {}
    near = ((f"dataset{path}", part) for path, part in walk(dataset, DEPTH))
    for path, thing in [("random", sys.modules.get("random")), *islice(near, LOOKED_AT)]:
        state = _state_of(thing)
        if state is not None:
            hashes[path] = f"{binascii.crc32(state):08x}"
    numpy = sys.modules.get("numpy.random")
    if numpy is not None:
        hashes["numpy.random"] = f"{binascii.crc32(_words_of(numpy)):08x}"
    session.note(
        "generators", worker_id=worker_id, hashes=hashes, dataset=class_name(type(dataset))
    )


def _state_of(thing: Any) -> bytes | None:
    """The state of a generator as bytes; `None` for other objects."""
    kind = f"{module_of_class(type(thing))}.{class_name(type(thing))}"
    if kind == "torch._C.Generator":
        if thing.device.type != "cpu":
            return None  # reading one of a GPU waits for the GPU
        return bytes(thing.get_state().numpy().tobytes())
    if kind == "numpy.random._generator.Generator":
        if not module_of_class(type(thing.bit_generator)).startswith("numpy.random."):
            return None  # a class of the program: reading the state would run its property
        return repr(thing.bit_generator.state).encode()
    if kind == "numpy.random.mtrand.RandomState":
        return _words_of(thing)
    if kind == "random.Random" or thing is sys.modules.get("random"):
        return repr(thing.getstate()).encode()
    return None


def _words_of(legacy: Any) -> bytes:
    """The state of one of numpy's older generators, such as the one of `numpy.random` itself.

    The words of a Mersenne Twister as bytes of its array: formatting the array as text took 3 ms
    of every worker's start, this takes 0.1 ms.
    """
    state = legacy.get_state(legacy=False)
    key = state["state"].pop("key", None)
    return (b"" if key is None else key.tobytes()) + repr(state).encode()
