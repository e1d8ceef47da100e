"""State dicts as bytes over queues between the learner and the actors."""
import io
from queue import Empty

import torch


def state_to_bytes(state):
    buf = io.BytesIO()
    torch.save(state, buf)
    return buf.getvalue()


def bytes_to_state(blob):
    return torch.load(io.BytesIO(blob), weights_only=True)


def try_get(queue):
    """The next item, or None if there is nothing right now."""
    try:
        return queue.get_nowait()
    except Empty:
        return None
