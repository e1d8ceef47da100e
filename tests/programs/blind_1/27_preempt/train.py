import argparse
import io
import logging
import os
import queue
import signal
import tempfile
import time

import torch
import torch.multiprocessing as mp
from torch import nn

from evaluate import evaluate_forever

log = logging.getLogger("train")


class PreemptionHandler:
    """Checkpoint on SIGUSR2, then go on until the time limit (the scheduler requeues us)."""

    def __init__(self, path):
        self.path, self.requested = path, False
        signal.signal(signal.SIGUSR2, self._on_signal)

    def _on_signal(self, signum, frame):
        self.requested = True

    def maybe_checkpoint(self, model, step):
        if self.requested:
            torch.save({"model": model.state_dict(), "step": step}, self.path)
            log.info("preemption notice: checkpoint at step %d", step)
            self.requested = False


def report_running():
    """Tell the launcher that the job has got through its start-up."""
    path = os.environ.get("SRUN_STATE_FILE")
    if path and not os.path.exists(path):
        with open(path, "w") as f:
            f.write("running\n")


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=5000)
    ap.add_argument("--eval-every", type=int, default=30)
    args = ap.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s [train] %(message)s")
    torch.set_num_threads(1)
    handler = PreemptionHandler(os.path.join(tempfile.mkdtemp(prefix="ckpt_"), "hpc_ckpt.pt"))
    ctx = mp.get_context("spawn")
    ckpts, scores = ctx.Queue(), ctx.Queue()
    ctx.Process(target=evaluate_forever, args=(ckpts, scores), name="evaluator", daemon=True).start()
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 32))
    opt = torch.optim.Adam(model.parameters())
    waiting = 0
    for step in range(args.steps):
        x = torch.randn(64, 32)
        loss = (model(x) - x).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        time.sleep(0.05)
        handler.maybe_checkpoint(model, step)
        if step % args.eval_every == 0:
            b = io.BytesIO()
            torch.save(model.state_dict(), b)
            ckpts.put((step, b.getvalue()))
            waiting += 1
        try:
            s, v = scores.get_nowait()
            waiting -= 1
            log.info("eval of step %d: %.4f", s, v)
            report_running()
        except queue.Empty:
            pass
        if step % 60 == 0:
            log.info("step %d loss %.4f, %d evaluations outstanding", step, loss.item(), waiting)


if __name__ == "__main__":
    main()
