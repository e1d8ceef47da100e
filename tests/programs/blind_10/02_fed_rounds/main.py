"""Federated averaging with fixed round windows (all sites agree on the clock, not on the head count)."""
import argparse
import logging
import multiprocessing as mp
import queue
import time

import numpy as np

from client import build_model, client_main

log = logging.getLogger("fed.server")


class Server:
    def __init__(self, clients, reports, window):
        self.clients = clients
        self.reports = reports
        self.window = window
        self.weights = {k: v.numpy().copy() for k, v in build_model().state_dict().items()}

    def collect(self, number, deadline):
        updates = {}
        while True:
            left = deadline - time.monotonic()
            if left <= 0:
                return updates
            try:
                sent_for, ident, loss, update = self.reports.get(timeout=left)
            except queue.Empty:
                return updates
            if sent_for == number:
                updates[ident] = (loss, update)

    def run_round(self, number):
        deadline = time.monotonic() + self.window
        for inbox in self.clients:
            inbox.put((number, self.weights))
        updates = self.collect(number, deadline)
        if updates:
            for key in self.weights:
                self.weights[key] = np.mean([u[key] for _, u in updates.values()], axis=0)
            log.info("round %d closed: %d of %d clients, mean loss %.3f", number, len(updates), len(self.clients),
                     np.mean([loss for loss, _ in updates.values()]))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--round-window", type=float, default=19.0, help="seconds a round stays open")
    parser.add_argument("--local-epochs", type=int, default=5)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(message)s")

    reports = mp.Queue()
    inboxes = [mp.Queue() for _ in range(args.clients)]
    workers = [
        mp.Process(target=client_main, args=(i, inboxes[i], reports, args.local_epochs), name=f"client-{i}", daemon=True)
        for i in range(args.clients)
    ]
    for worker in workers:
        worker.start()
    server = Server(inboxes, reports, args.round_window)
    for number in range(1, args.rounds + 1):
        server.run_round(number)
    for inbox in inboxes:
        inbox.put(None)
    for worker in workers:
        worker.join()


if __name__ == "__main__":
    main()
