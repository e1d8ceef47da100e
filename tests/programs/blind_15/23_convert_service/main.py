"""Document conversion service with local workers, and two batch clients to keep it busy."""
import argparse
import logging
import multiprocessing as mp
import threading
import time

from app import make_server
from client import run_client
from orchestrator import LocalOrchestrator

log = logging.getLogger("serve")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--num-workers", type=int, default=2)
    p.add_argument("--clients", type=int, default=2)
    p.add_argument("--pause", type=float, default=0.02)
    p.add_argument("--report-every", type=float, default=10)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(name)s: %(message)s")
    orchestrator = LocalOrchestrator(args.num_workers)
    orchestrator.start()
    server = make_server(orchestrator)
    port = server.server_address[1]
    for i in range(args.clients):
        mp.Process(target=run_client, args=(port, f"batch{i}", args.pause, 3.0), name=f"client-{i}",
                   daemon=True).start()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    log.info("serving on port %d", port)
    started = time.time()
    while True:
        time.sleep(args.report_every)
        done = sum(t.is_completed for t in list(orchestrator.tasks.values()))
        log.info("%d tasks completed, %.1f per second", done, done / (time.time() - started))


if __name__ == "__main__":
    main()
