"""Starts a small message broker, a few sensors and the scoring bridge on this host."""
import argparse
import logging
import multiprocessing as mp
import signal
import sys

from bridge import run_bridge
from broker import run_broker
from sensors import run_sensor

log = logging.getLogger("main")


def setup_logging(level="INFO"):
    logging.basicConfig(
        level=level,
        format="%(asctime)s %(processName)s[%(process)d] %(name)s: %(message)s",
        stream=sys.stderr,
        force=True,
    )


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--sensors", type=int, default=2)
    p.add_argument("--interval", type=float, default=0.05, help="seconds between two readings of one sensor")
    p.add_argument("--calibration", type=float, default=5.0, help="seconds of readings used to fit the scaler")
    p.add_argument("--window", type=int, default=32)
    p.add_argument("--log-level", default="INFO")
    return p.parse_args()


def main():
    args = parse_args()
    setup_logging(args.log_level)
    ctx = mp.get_context("fork")

    recv, send = ctx.Pipe(duplex=False)
    broker = ctx.Process(target=run_broker, args=(send,), name="broker", daemon=True)
    broker.start()
    host, port = recv.recv()
    log.info("broker listens on %s:%d", host, port)

    bridge = ctx.Process(target=run_bridge, args=(host, port, args), name="bridge", daemon=True)
    bridge.start()
    workers = [
        ctx.Process(target=run_sensor, args=(host, port, i, args.interval), name=f"sensor-{i}", daemon=True)
        for i in range(args.sensors)
    ]
    for w in workers:
        w.start()

    def stop(signum, frame):
        for p in workers + [bridge, broker]:
            p.terminate()
        sys.exit(0)

    signal.signal(signal.SIGTERM, stop)
    try:
        bridge.join()
    except KeyboardInterrupt:
        stop(signal.SIGINT, None)


if __name__ == "__main__":
    main()
