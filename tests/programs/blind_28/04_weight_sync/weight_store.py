import pickle
from datetime import timedelta

import torch
import torch.distributed as dist


class WeightStore:
    """Versioned policy weights shared through a key-value store."""

    def __init__(self, host, port, server=False):
        self.store = dist.TCPStore(
            host, port, is_master=server, wait_for_workers=False, timeout=timedelta(minutes=10)
        )
        self.port = self.store.port

    def publish(self, state_dict, version):
        names = []
        for name, tensor in state_dict.items():
            self.store.set(f"policy/{version}/{name}", tensor.detach().contiguous().numpy().tobytes())
            names.append((name, tuple(tensor.shape)))
        self.store.set(f"policy/{version}/index", pickle.dumps(names))
        self.store.set("policy/latest", str(version))

    def latest(self):
        return int(self.store.get("policy/latest"))

    def fetch(self, version):
        names = pickle.loads(self.store.get(f"policy/{version}/index"))
        state = {}
        for name, shape in names:
            raw = bytearray(self.store.get(f"policy/{version}/{name}"))
            state[name] = torch.frombuffer(raw, dtype=torch.float32).reshape(shape)
        return state
