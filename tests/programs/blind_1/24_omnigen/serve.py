import argparse
import logging
import queue
import time

from engine import OmniEngine

log = logging.getLogger("serve")


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--workers", type=int, default=3)
    ap.add_argument("--rate", type=float, default=3.0)
    ap.add_argument("--seconds", type=float, default=150)
    args = ap.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    eng = OmniEngine(args.workers)
    eng.start_async()
    eng.healthy.wait()
    log.info("engine healthy")
    sent = got = 0
    t0 = time.time()
    last = t0
    while time.time() - t0 < args.seconds:
        eng.requests.put((sent, sent))
        sent += 1
        time.sleep(1 / args.rate)
        try:
            while True:
                eng.results.get_nowait()
                got += 1
        except queue.Empty:
            pass
        if time.time() - last > 3:
            last = time.time()
            log.info("sent %d answered %d backlog %d", sent, got, sent - got)


if __name__ == "__main__":
    main()
