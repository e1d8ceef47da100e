"""Runs the consumers of a submission queue and restarts those whose session is over."""
import argparse
import logging
import multiprocessing as mp
import random
import threading
import time

from broker import BrokerManager
from consumer import Worker, monitor

log = logging.getLogger("run_consumer")


def students(broker, rate, stop_event):
    rng = random.Random(2)
    n = 0
    while not stop_event.is_set():
        n += 1
        broker.publish({"student": rng.randrange(500), "problem": n % 12, "code": f"print({n})\n" * 40})
        time.sleep(rng.expovariate(rate))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--workers", type=int, default=3)
    p.add_argument("--duration", type=float, default=100)
    p.add_argument("--session-length", type=int, default=60)
    p.add_argument("--rate", type=float, default=14.0)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(message)s")
    manager = BrokerManager()
    manager.start()
    broker = manager.Broker()
    stop_event, students_stop = mp.Event(), threading.Event()
    deadline = time.time() + args.duration
    workers = [Worker(f"problem-set-{i}", broker, stop_event, args.session_length) for i in range(args.workers)]
    for worker in workers:
        worker.start()
    threading.Thread(target=students, args=(broker, args.rate, students_stop), daemon=True).start()
    threading.Thread(target=report, args=(broker,), daemon=True).start()
    restarts = monitor(workers, broker, deadline=deadline, stop_event=stop_event)
    students_stop.set()
    log.info("done: %d restarts, %s", restarts, broker.stats())
    manager.shutdown()


def report(broker, every=10):
    while True:
        time.sleep(every)
        try:
            log.info("%s", broker.stats())
        except (EOFError, ConnectionError, OSError):
            return


if __name__ == "__main__":
    main()
