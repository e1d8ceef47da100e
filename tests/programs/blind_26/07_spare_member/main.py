"""Training with a hot spare: nodes leave for maintenance one after another, the spare takes over."""
import argparse
import datetime
import itertools
import logging
import shutil
import signal
import sys
import tempfile
import time

import torch.distributed as dist
import torch.multiprocessing as mp

from member import member_main

log = logging.getLogger("controller")


def parse_args():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--active", type=int, default=2)
    p.add_argument("--spares", type=int, default=1)
    p.add_argument("--first-maintenance", type=float, default=25.0)
    p.add_argument("--maintenance-interval", type=float, default=40.0)
    p.add_argument("--pace", type=float, default=0.01)
    return p.parse_args()


class Controller:
    def __init__(self, args):
        self.args = args
        self.ctx = mp.get_context("spawn")
        self.store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False,
                                   timeout=datetime.timedelta(seconds=60))
        self.store.set("generation", "0")
        self.ids = itertools.count(1)
        self.members = {}
        self.seats = []
        self.generation = 0

    def start_member(self):
        member_id = next(self.ids)
        process = self.ctx.Process(target=member_main, args=(member_id, self.store.port, self.args),
                                   name=f"member-{member_id}", daemon=True)
        process.start()
        self.members[member_id] = process
        return member_id

    def open_generation(self, seats):
        self.generation += 1
        self.seats = seats
        for rank, member_id in enumerate(seats):
            self.store.set(f"seat/{self.generation}/{member_id}", str(rank))
        self.store.set("generation", str(self.generation))
        log.info("generation %d: members %s, standing by %s", self.generation, seats,
                 sorted(set(self.members) - set(seats)))

    def maintenance(self):
        """The member that has been in longest leaves; the rest and the spare form the next generation."""
        leaving = min(self.seats)
        old = self.generation
        log.info("member %d has maintenance", leaving)
        self.store.set(f"drain/{old}", str(leaving))
        self.store.wait([f"drained/{old}/{m}" for m in self.seats], datetime.timedelta(seconds=60))
        self.members[leaving].join()
        log.info("member %d has left with exit code %s", leaving, self.members.pop(leaving).exitcode)
        spare = min(set(self.members) - set(self.seats))
        self.open_generation([m for m in self.seats if m != leaving] + [spare])
        self.start_member()
        for m in (leaving, *self.seats):
            self.store.delete_key(f"seat/{old}/{m}")
            self.store.delete_key(f"drained/{old}/{m}")

    def run(self):
        first = [self.start_member() for _ in range(self.args.active + self.args.spares)]
        self.open_generation(first[:self.args.active])
        next_maintenance = time.monotonic() + self.args.first_maintenance
        while True:
            time.sleep(1)
            for member_id, process in self.members.items():
                if process.exitcode is not None:
                    raise SystemExit(f"member {member_id} has ended with {process.exitcode}")
            if time.monotonic() > next_maintenance:
                self.maintenance()
                next_maintenance = time.monotonic() + self.args.maintenance_interval


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    args.folder = tempfile.mkdtemp(prefix="spare-")
    try:
        Controller(args).run()
    finally:
        shutil.rmtree(args.folder, ignore_errors=True)


if __name__ == "__main__":
    main()
