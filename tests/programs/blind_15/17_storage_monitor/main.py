"""Storage daemon: keeps a model of the block devices up to date and reports on it."""
import argparse
import logging
import multiprocessing as mp
import threading
import time

from devices import DeviceTree
from prober import watch_bus

log = logging.getLogger("blivet")


class EventManager(threading.Thread):
    def __init__(self, tree, events):
        super().__init__(name="event-manager", daemon=True)
        self.tree = tree
        self.events = events
        self.handled = 0

    def run(self):
        while True:
            event = self.events.get()
            self.tree.handle_event(event)
            self.handled += 1


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--buses", nargs="*", default=["scsi", "nvme"])
    p.add_argument("--disks-per-bus", type=int, default=8)
    p.add_argument("--event-interval", type=float, default=0.12)
    p.add_argument("--report-interval", type=float, default=0.5)
    p.add_argument("--settle", type=float, default=0.25)
    args = p.parse_args()
    logging.basicConfig(level=logging.DEBUG,
                        format="%(asctime)s %(processName)s/%(threadName)s %(name)s: %(message)s")
    names = {bus: [f"{bus}{i}" for i in range(args.disks_per_bus)] for bus in args.buses}
    events = mp.Queue(maxsize=128)
    settle_time = args.settle * args.disks_per_bus * len(args.buses)
    for i, bus in enumerate(args.buses):
        mp.Process(target=watch_bus, name=f"prober-{bus}", daemon=True,
                   args=(bus, names[bus], events, settle_time + 1, args.event_interval, i)).start()

    tree = DeviceTree()
    tree.populate([{"name": n, "size": 4096} for bus in args.buses for n in names[bus]], args.settle)
    manager = EventManager(tree, events)
    manager.start()
    disks = tree.disks()
    while True:
        time.sleep(args.report_interval)
        log.info("%d events handled", manager.handled)
        for disk in disks:
            log.info("state of %s", disk)


if __name__ == "__main__":
    main()
