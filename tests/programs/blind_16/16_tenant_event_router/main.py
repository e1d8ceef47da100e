import argparse
import logging
import multiprocessing as mp
import os
import queue
import random
import tempfile
import time

from router import Session

KINDS = ("position", "alarm", "heartbeat", "diagnostics")


def parse_args():
    p = argparse.ArgumentParser(description="route the events of the tenants' devices")
    p.add_argument("--routers", type=int, default=2)
    p.add_argument("--seconds", type=float, default=170)
    p.add_argument("--sessions-per-second", type=float, default=16)
    p.add_argument("--events", type=int, default=120)
    p.add_argument("--tenants", type=int, default=40)
    return p.parse_args()


def router_main(number, inbox, counts, telemetry_path):
    console = logging.StreamHandler()
    console.setLevel(logging.WARNING)
    logging.getLogger().addHandler(console)
    logging.getLogger().setLevel(logging.INFO)
    while True:
        job = inbox.get()
        if job is None:
            return
        tenant, events = job
        with Session(tenant, events, telemetry_path) as session:
            routed = session.route()
        counts.put((number, tenant, sum(routed.values())))


def make_events(rng, count):
    return [{"id": "%032x" % rng.getrandbits(128), "kind": rng.choice(KINDS), "device": rng.randrange(1000),
             "body": "%0*x" % (1800, rng.getrandbits(1800 * 4))} for _ in range(count)]


def main():
    args = parse_args()
    folder = tempfile.mkdtemp(prefix="router_")
    inbox, counts = mp.Queue(maxsize=8), mp.Queue()
    routers = [mp.Process(target=router_main, name=f"router-{n}",
                          args=(n, inbox, counts, os.path.join(folder, f"telemetry-{n}.txt")))
               for n in range(args.routers)]
    for r in routers:
        r.start()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    log = logging.getLogger("gateway")
    rng = random.Random(3)
    start = last = time.time()
    sessions = events = 0
    while time.time() - start < args.seconds:
        inbox.put((f"tenant{rng.randrange(args.tenants):02d}", make_events(rng, args.events)))
        sessions += 1
        try:
            while True:
                events += counts.get_nowait()[2]
        except queue.Empty:
            pass
        if time.time() - last > 5:
            last = time.time()
            log.info("%d sessions, %d events routed", sessions, events)
        time.sleep(max(0.0, start + sessions / args.sessions_per_second - time.time()))
    for _ in routers:
        inbox.put(None)
    for r in routers:
        r.join()
    log.info("gateway stopped after %d sessions", sessions)


if __name__ == "__main__":
    main()
