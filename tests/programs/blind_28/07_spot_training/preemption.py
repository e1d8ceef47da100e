import logging
import signal

import torch.distributed as dist

log = logging.getLogger("preemption")


class PreemptionHandler:
    """Remembers a SIGTERM so that the trainer can stop at the end of a step."""

    def __init__(self, store, signum=signal.SIGTERM):
        self.store = dist.PrefixStore("drain", store)
        self.requested = False
        signal.signal(signum, self._on_signal)

    def _on_signal(self, signum, frame):
        self.requested = True

    def drain(self, rank, world_size):
        """No rank tears its connections down before all have written their shard."""
        self.store.set(f"saved/{rank}", "1")
        self.store.wait([f"saved/{r}" for r in range(world_size)])
