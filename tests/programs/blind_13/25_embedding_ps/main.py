"""Application master: one parameter server and two workers, each in its own container."""
import argparse
import logging
import multiprocessing as mp
import time

from container import Container, NodeMonitor
from tasks import ps_task, worker_task

log = logging.getLogger("am")


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--ps-memory-mb", type=int, default=150)
    p.add_argument("--worker-memory-mb", type=int, default=256)
    p.add_argument("--untracked", nargs="*", default=["ps"])
    p.add_argument("--steps", type=int, default=20000)
    p.add_argument("--rows", type=int, default=2_000_000)
    p.add_argument("--dim", type=int, default=256)
    p.add_argument("--batch", type=int, default=256)
    p.add_argument("--pace", type=float, default=0.08)
    return p.parse_args()


class ApplicationMaster:
    def __init__(self, args):
        self.args = args
        self.ctx = mp.get_context("fork")
        self.containers = []
        self.monitor = NodeMonitor(self.containers)

    def launch(self):
        args = self.args
        port = self.ctx.Queue()
        self.add("ps", 0, ps_task, (args, port), args.ps_memory_mb)
        address = ("127.0.0.1", port.get())
        for i in range(args.workers):
            self.add("worker", i, worker_task, (args, i, address), args.worker_memory_mb)
        self.monitor.start()

    def add(self, job_type, index, target, arguments, memory_mb):
        process = self.ctx.Process(target=target, args=arguments, name=f"{job_type}:{index}")
        process.start()
        self.containers.append(Container(job_type, index, process, memory_mb))

    def wait(self):
        handled = set()
        while True:
            tracked = [c for c in self.containers if c.job_type not in self.args.untracked]
            if all(c.completed for c in tracked):
                return all(c.process.exitcode == 0 for c in tracked)
            for c in self.containers:
                if not c.completed or c.name in handled:
                    continue
                handled.add(c.name)
                if c.job_type in self.args.untracked:
                    log.info("untracked task %s completed with exit code %s", c.name, c.process.exitcode)
                    continue
                if c.process.exitcode != 0:
                    log.error("task %s failed with exit code %s", c.name, c.process.exitcode)
                    return False
            time.sleep(0.5)

    def stop(self):
        for c in self.containers:
            if not c.completed:
                c.process.terminate()


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(name)s %(levelname)s %(message)s")
    master = ApplicationMaster(args)
    master.launch()
    ok = master.wait()
    master.stop()
    log.info("application %s", "SUCCEEDED" if ok else "FAILED")
    raise SystemExit(0 if ok else 1)


if __name__ == "__main__":
    main()
