import functools
import os
import re

import torch
import torch.distributed as dist

PATTERN = re.compile(r"^epoch_(\d+)_step_(\d+)\.pt$")


def get_rank():
    return dist.get_rank() if dist.is_initialized() else 0


def rank_zero_read_and_broadcast(func):
    """Run func on rank 0 and give its result to every rank."""

    @functools.wraps(func)
    def wrapper(*args, **kwargs):
        ret = func(*args, **kwargs) if get_rank() == 0 else None
        if dist.is_initialized() and dist.get_world_size() > 1:
            box = [ret]
            dist.broadcast_object_list(box, src=0)
            ret = box[0]
        return ret

    return wrapper


def list_checkpoints(dirpath):
    found = []
    for name in os.listdir(dirpath):
        m = PATTERN.match(name)
        if m:
            found.append((int(m.group(2)), os.path.join(dirpath, name)))
    return [path for _, path in sorted(found)]


@rank_zero_read_and_broadcast
def get_latest_checkpoint_path(dirpath):
    ckpts = list_checkpoints(dirpath)
    return ckpts[-1] if ckpts else None


def save_checkpoint(path, model, opt, epoch, step):
    torch.save({"model": model.state_dict(), "opt": opt.state_dict(),
                "epoch": epoch, "step": step}, path)


def load_checkpoint(path, model, opt):
    ckpt = torch.load(path, weights_only=True)
    model.load_state_dict(ckpt["model"])
    opt.load_state_dict(ckpt["opt"])
    return ckpt["step"]
