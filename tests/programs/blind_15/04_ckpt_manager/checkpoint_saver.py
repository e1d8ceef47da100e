import logging
import os

from checkpoint_utils import (get_latest_checkpoint_path, get_rank, list_checkpoints,
                              save_checkpoint)

log = logging.getLogger("saver")


class CheckpointSaver:
    """Saves on rank 0 every n steps and purges old checkpoints."""

    def __init__(self, dirpath, save_every, keep_last):
        self.dirpath = dirpath
        self.save_every = save_every
        self.keep_last = keep_last

    def on_train_step_end(self, model, opt, epoch, step):
        if step % self.save_every != 0:
            return
        if get_rank() == 0:
            path = os.path.join(self.dirpath, "epoch_%d_step_%d.pt" % (epoch, step))
            save_checkpoint(path, model, opt, epoch, step)
            log.info("saved %s", os.path.basename(path))
            self._purge()

    def _purge(self):
        ckpts = list_checkpoints(self.dirpath)
        if len(ckpts) <= self.keep_last:
            return
        newest = get_latest_checkpoint_path(self.dirpath)
        for path in ckpts[:-self.keep_last]:
            if path != newest:
                os.remove(path)
                log.info("removed %s", os.path.basename(path))
