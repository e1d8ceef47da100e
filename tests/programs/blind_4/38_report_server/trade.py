"""Back-test of a moving-average strategy; the strategy runs in a child process and reports over HTTP."""
import argparse
import http.client
import json
import logging
import multiprocessing as mp
import time

import numpy as np

from report_server import ReportServer


class Reporter:
    def __init__(self, port):
        self.port = port

    def post(self, path, body):
        conn = http.client.HTTPConnection("127.0.0.1", self.port)
        conn.request("POST", path, json.dumps(body))
        conn.getresponse().read()
        conn.close()


def backtest(port, days, window):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s backtest %(message)s", force=True)
    reporter = Reporter(port)
    price = np.cumsum(np.random.default_rng(0).normal(size=days)) + 100
    equity = 1000.0
    for day in range(window, days):
        mean = price[day - window:day].mean()
        if price[day - 1] > mean:
            equity *= price[day] / price[day - 1]
        if day % 10 == 0:
            reporter.post("/scalar", {"day": day, "equity": round(equity, 2)})
        time.sleep(0.008)
    logging.info("final equity %.2f", equity)
    reporter.post("/finish", {})


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--days", type=int, default=500)
    p.add_argument("--window", type=int, default=20)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    server = ReportServer()
    port = server.start()
    proc = mp.get_context("spawn").Process(target=backtest, args=(port, args.days, args.window))
    proc.start()
    proc.join()
    server.thread.join()
    logging.info("report: %s", server.scalars[-1])


if __name__ == "__main__":
    main()
