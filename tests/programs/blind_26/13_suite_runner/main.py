"""Runs the numerical conformance suites in several runner processes."""
import argparse
import logging
import multiprocessing as mp
import threading
import time

import torch

from runner import run_tests
from source import Manifest

log = logging.getLogger("suites")


class Session:
    def __init__(self, args):
        self.args = args
        suites = {"linalg": 0.0, "activations": 0.0, "autograd": 7.0, "reductions": 0.0, "fft": 4.0}
        self.manifest = Manifest(suites, args.groups, args.cases)
        self.tests = mp.Queue()
        self.results = mp.Queue()
        self.expected = len(suites) * args.groups
        self.loaded = 0

    def load(self, suite):
        for group in self.manifest.expand(suite):
            self.tests.put(group)
            self.loaded += 1
        log.info("suite %s loaded, %d of %d groups", suite, self.loaded, self.expected)

    def load_remaining(self, suites):
        for suite in suites:
            self.load(suite)

    def run(self):
        suites = list(self.manifest.suites)
        for suite in suites[:2]:
            self.load(suite)
        while self.tests.empty():
            time.sleep(0.05)
        runners = [mp.Process(target=run_tests, args=(i, self.tests, self.results), name="runner-%d" % i)
                   for i in range(self.args.runners)]
        for r in runners:
            r.start()
        loader = threading.Thread(target=self.load_remaining, args=(suites[2:],), daemon=True)
        loader.start()
        failed = 0
        for done in range(1, self.expected + 1):
            index, name, passed, cases = self.results.get()
            failed += cases - passed
            log.info("[%d/%d] %s: %d/%d passed (runner %d)", done, self.expected, name, passed, cases, index)
        for r in runners:
            r.join()
        log.info("all suites done, %d failures", failed)


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--runners", type=int, default=3)
    p.add_argument("--groups", type=int, default=6)
    p.add_argument("--cases", type=int, default=16)
    return p.parse_args()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s")
    torch.set_num_threads(1)
    Session(parse_args()).run()
