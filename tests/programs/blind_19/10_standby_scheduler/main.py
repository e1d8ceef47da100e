"""Runs three scheduler instances for failover and watches their health endpoints."""
import argparse
import json
import logging
import multiprocessing as mp
import os
import sqlite3
import tempfile
import time
import urllib.request

from scheduler import instance_main

log = logging.getLogger("monitor")


class Monitor:
    def __init__(self, state_dir, instances):
        self.state_dir = state_dir
        self.ports = {}
        queue = mp.Queue()
        self.processes = {}
        for i in range(instances):
            name = "scheduler-%d" % i
            p = mp.Process(target=instance_main, args=(name, state_dir, queue), name=name, daemon=True)
            p.start()
            self.processes[name] = p
        for _ in range(instances):
            name, port = queue.get(timeout=60)
            self.ports[name] = port

    def check(self):
        report = {}
        for name, port in sorted(self.ports.items()):
            try:
                with urllib.request.urlopen("http://127.0.0.1:%d/health" % port, timeout=5) as r:
                    report[name] = json.load(r)
            except OSError as e:
                report[name] = {"status": "unreachable", "error": str(e), "runs": 0}
        return report

    def recent_runs(self, seconds):
        path = os.path.join(self.state_dir, "history.sqlite")
        if not os.path.exists(path):
            return 0
        with sqlite3.connect(path, timeout=5) as db:
            try:
                return db.execute("select count(*) from runs where at > ?", (time.time() - seconds,)).fetchone()[0]
            except sqlite3.OperationalError:
                return 0

    def stop(self):
        for p in self.processes.values():
            p.terminate()
        for p in self.processes.values():
            p.join(timeout=5)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--instances", type=int, default=3)
    parser.add_argument("--interval", type=float, default=5.0)
    parser.add_argument("--seconds", type=float, default=120)
    args = parser.parse_args()
    mp.set_start_method("fork")
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(message)s")

    with tempfile.TemporaryDirectory(prefix="sched-") as state_dir:
        monitor = Monitor(state_dir, args.instances)
        started = time.monotonic()
        while time.monotonic() - started < args.seconds:
            time.sleep(args.interval)
            report = monitor.check()
            active = [n for n, r in report.items() if r["status"] == "active"]
            log.info("%s; %d job runs in the last %.0f s", ", ".join(
                "%s=%s (%d runs)" % (n, r["status"], r["runs"]) for n, r in report.items()),
                monitor.recent_runs(args.interval), args.interval)
            if len(active) != 1:
                log.warning("expected one active instance, found %s", active)
        monitor.stop()
    log.info("monitor finished")


if __name__ == "__main__":
    main()
