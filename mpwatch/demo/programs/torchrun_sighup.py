"""Run torchrun in a terminal, where closing the window ends the training.

torchrun handles SIGHUP itself, which also overrides `nohup`. The terminal here is a
pseudo-terminal, as in an ssh session.
"""

import os
import pty
import signal
import sys
import time

import torch
import torch.distributed as dist

from mpwatch.demo.bounds import begin, mended


def train():
    dist.init_process_group("gloo")
    gradient = torch.ones(1000)
    for step in range(3000):
        dist.all_reduce(gradient)
        gradient /= 2
        time.sleep(0.05)
        if step == 10 and dist.get_rank() == 0:
            print("ready", flush=True)


def main():
    begin(__doc__)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    if mended():  # as under nohup; torchrun then keeps this setting
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        torchrun.append("--signals-to-handle=SIGTERM,SIGINT,SIGQUIT")
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(sys.executable, [*torchrun, "--nproc-per-node=2", os.path.abspath(__file__)])
    while True:
        try:
            text = os.read(terminal, 4096)
        except OSError:  # the last process on the terminal has ended
            break
        print(text.decode(errors="replace"), end="", flush=True)
        time.sleep(0.1)


if __name__ == "__main__":
    if "RANK" in os.environ:
        train()
    else:
        main()
