import argparse
import logging
import multiprocessing as mp
import os
import sys
import threading
import time
from collections import defaultdict, deque

from btle import BTLEException, Device

TEMPERATURE = 0x1C


def setup_logging(name):
    logging.basicConfig(stream=sys.stdout, level=logging.INFO, force=True,
                        format="%(asctime)s " + name + " %(levelname)s %(message)s")
    return logging.getLogger(name)


class ButtonDelegate:
    def __init__(self, log):
        self.log = log
        self.count = 0

    def handle_notification(self, handle, value):
        self.count += 1
        self.log.info("notification on 0x%x: %s", handle, value)


class Gateway(mp.Process):
    """Polls one peripheral and forwards its readings."""

    def __init__(self, addr, readings, interval, limit):
        super().__init__(name="gateway-" + addr[-2:])
        self.addr = addr
        self.readings = readings
        self.interval = interval
        self.limit = limit

    def _arm_limit(self, device):
        def stop():
            if device._helper is not None:
                device._helper.kill()
            os._exit(0)

        t = threading.Timer(self.limit, stop)
        t.daemon = True
        t.start()

    def run(self):
        log = setup_logging(self.name)
        device = Device(self.addr, ButtonDelegate(log))
        self._arm_limit(device)
        device.connect()
        device.subscribe(0x2A)
        log.info("connected to %s", self.addr)
        n = 0
        while True:
            try:
                value = device.read_characteristic(TEMPERATURE)
            except BTLEException as exc:
                log.error("read failed: %s", exc)
                device.connect()
                continue
            n += 1
            self.readings.put((self.addr, time.time(), value))
            if n % 10 == 0:
                log.info("%d readings, last %.2f", n, value)
            time.sleep(self.interval)


class Aggregator:
    def __init__(self, window):
        self.series = defaultdict(lambda: deque(maxlen=window))
        self.total = 0

    def add(self, addr, ts, value):
        self.series[addr].append((ts, value))
        self.total += 1

    def summary(self):
        return ", ".join("%s mean %.2f" % (a, sum(v for _, v in s) / len(s))
                         for a, s in sorted(self.series.items()))


def main():
    p = argparse.ArgumentParser(description="temperature gateway")
    p.add_argument("--devices", nargs="+", default=["c4:7c:8d:6a:00:01", "c4:7c:8d:6a:00:02"])
    p.add_argument("--interval", type=float, default=0.08)
    p.add_argument("--window", type=int, default=60)
    p.add_argument("--limit", type=float, default=125.0, help="length of the session in seconds")
    args = p.parse_args()

    log = setup_logging("main")
    readings = mp.Queue()
    gateways = [Gateway(a, readings, args.interval, args.limit) for a in args.devices]
    for g in gateways:
        g.start()
    closing = threading.Timer(args.limit + 5, lambda: os._exit(0))
    closing.daemon = True
    closing.start()

    agg = Aggregator(args.window)
    while any(g.is_alive() for g in gateways):
        agg.add(*readings.get())
        if agg.total % 20 == 0:
            log.info("%d readings: %s", agg.total, agg.summary())


if __name__ == "__main__":
    main()
