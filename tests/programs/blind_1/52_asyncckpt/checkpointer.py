import logging
import multiprocessing as mp
import os
import time

import torch

log = logging.getLogger("ckpt")


def _write(state, path, mb_per_s):
    """Writes slowly (quota of the network file system), then leaves."""
    torch.set_num_threads(1)
    tmp = path + ".tmp"
    torch.save(state, tmp)
    time.sleep(sum(v.numel() * v.element_size() for v in state.values()) / 2**20 / mb_per_s)
    os.rename(tmp, path)


class AsyncCheckpointer:
    def __init__(self, folder, mb_per_s=4.5):
        self.folder, self.mb_per_s, self.proc = folder, mb_per_s, None

    def save(self, model, step):
        if self.proc is not None and self.proc.is_alive():
            log.info("step %d: the previous checkpoint is still being written, skipped", step)
            return
        if self.proc is not None:
            self.proc.join()
        snapshot = {k: v.detach().clone() for k, v in model.state_dict().items()}
        path = os.path.join(self.folder, "last.pt")
        self.proc = mp.get_context("fork").Process(target=_write, args=(snapshot, path, self.mb_per_s), name="ckpt",
                                                   daemon=True)
        self.proc.start()
        log.info("step %d: checkpoint in background", step)
