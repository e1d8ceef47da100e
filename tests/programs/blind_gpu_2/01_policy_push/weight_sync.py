import logging
import time
import zlib

import torch
import torch.distributed as dist

log = logging.getLogger("weight_sync")


def wire_tag(name):
    return zlib.crc32(name.encode()) & 0x7FFF


class ParamSyncer:
    """Moves trainable weights from a trainer rank to its rollout rank.

    Only parameters that the optimizer touches are shipped; the encoder stays
    frozen on both sides.
    """

    def __init__(self, model, group, frozen_prefixes=("encoder.",)):
        self.model = model
        self.group = group
        self.names_to_sync = {
            name for name, _ in model.named_parameters()
            if not name.startswith(tuple(frozen_prefixes))
        }
        self.version = 0

    def _tensors(self):
        params = dict(self.model.named_parameters())
        for name in self.names_to_sync:
            yield name, params[name]

    def push(self, dst):
        started = time.monotonic()
        sent = 0
        for name, param in self._tensors():
            host = param.detach().to("cpu", copy=True)
            dist.send(host, dst=dst, group=self.group, tag=wire_tag(name))
            sent += host.numel() * host.element_size()
        self.version += 1
        log.info("pushed v%d to rank %d: %.1f MB in %.2fs", self.version, dst,
                 sent / 1e6, time.monotonic() - started)

    def pull(self, src):
        for name, param in self._tensors():
            host = torch.empty(param.shape, dtype=param.dtype)
            dist.recv(host, src=src, group=self.group, tag=wire_tag(name))
            with torch.no_grad():
                param.copy_(host)
        self.version += 1
        log.info("pulled v%d from rank %d", self.version, src)
