"""Start a fine-tuning job, keep its log small and pick up the final checkpoint."""
import argparse
import logging
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

log = logging.getLogger("supervise")


class RotatingOutput:
    """Log file of a child: moved away when it gets too big, then the child is told to reopen it."""

    def __init__(self, path, max_bytes):
        self.path = Path(path)
        self.max_bytes = max_bytes
        self.generation = 0

    def needs_rotation(self):
        return self.path.exists() and self.path.stat().st_size > self.max_bytes

    def rotate(self, pid):
        self.generation += 1
        self.path.rename(self.path.with_suffix(f".{self.generation}"))
        self.path.touch()
        os.kill(pid, signal.SIGHUP)
        log.info("rotated %s (generation %d)", self.path.name, self.generation)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--nproc", type=int, default=2)
    p.add_argument("--max-log-kb", type=int, default=3)
    p.add_argument("--poll", type=float, default=0.5)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    work = Path(tempfile.mkdtemp(prefix="finetune-"))
    final = work / "final.pt"
    output = RotatingOutput(work / "train.log", args.max_log_kb << 10)
    cmd = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(args.nproc),
           "finetune.py"]
    with open(output.path, "ab") as fh:
        job = subprocess.Popen(cmd, stdout=fh, stderr=subprocess.STDOUT,
                               env=dict(os.environ, FINAL_CKPT=str(final)))
    log.info("job %d writes to %s", job.pid, output.path)
    while not final.exists():
        if output.needs_rotation():
            output.rotate(job.pid)
        time.sleep(args.poll)
    log.info("final checkpoint has %d bytes", final.stat().st_size)


if __name__ == "__main__":
    main()
