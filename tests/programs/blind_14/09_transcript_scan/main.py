import argparse
import logging
import os
import tempfile
import time

from multi_process import multi_process_scan
from recorder import Recorder


def parse_args():
    p = argparse.ArgumentParser(description="Scan agent transcripts for refusals and tool use")
    p.add_argument("--transcripts", type=int, default=24_000)
    p.add_argument("--processes", type=int, default=3)
    p.add_argument("--report-every", type=float, default=5.0)
    p.add_argument("--seed", type=int, default=17)
    p.add_argument("--out", default=None)
    return p.parse_args()


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    out = args.out or tempfile.mkdtemp(prefix="scan_")
    recorder = Recorder(os.path.join(out, "results.db"))
    began = time.time()
    rows = multi_process_scan(recorder, args.processes, args.transcripts, args.seed, args.report_every)
    logging.info("%d results in %.0f s: %s", rows, time.time() - began, recorder.summary())
    recorder.close()


if __name__ == "__main__":
    main()
