"""Starts the ranks of a training script on this machine and waits for them."""
import argparse
import logging
import os
import socket
import subprocess
import sys
import time

log = logging.getLogger("launch")


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class LocalLauncher:
    """Rank 0 keeps the terminal; what the other ranks say is shown only if they fail."""

    def __init__(self, script, script_args, nproc):
        self.script = script
        self.script_args = script_args
        self.nproc = nproc
        self.procs = []

    def start(self):
        port = free_port()
        for rank in range(self.nproc):
            env = dict(os.environ, RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(self.nproc),
                       MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), OMP_NUM_THREADS="1")
            quiet = {} if rank == 0 else {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
            self.procs.append(subprocess.Popen([sys.executable, self.script, *self.script_args], env=env, **quiet))
            log.info("rank %d is pid %d", rank, self.procs[-1].pid)

    def wait(self):
        failed = []
        while any(p.poll() is None for p in self.procs):
            failed = [r for r, p in enumerate(self.procs) if p.poll() not in (None, 0)]
            if failed:
                break
            time.sleep(0.5)
        if failed:
            for p in self.procs:
                p.kill()
            for r in failed:
                out = self.procs[r].stdout
                log.error("rank %d failed:\n%s", r, out.read().decode()[-4000:] if out else "")
        return 1 if failed else 0


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--nproc", type=int, default=3)
    p.add_argument("script", nargs="?", default="train.py")
    p.add_argument("script_args", nargs=argparse.REMAINDER)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    launcher = LocalLauncher(args.script, args.script_args, args.nproc)
    launcher.start()
    sys.exit(launcher.wait())


if __name__ == "__main__":
    main()
