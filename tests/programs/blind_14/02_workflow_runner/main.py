import argparse
import logging
import tempfile
import time

from multiproc import MultiProcRunner
from workflow import subject_workflow


def parse_args():
    p = argparse.ArgumentParser(description="Preprocess the sessions of a few subjects")
    p.add_argument("--subjects", type=int, default=3)
    p.add_argument("--sessions", type=int, default=30)
    p.add_argument("--n-procs", type=int, default=3)
    p.add_argument("--memory-gb", type=float, default=0.5)
    p.add_argument("--work-dir", default=None)
    return p.parse_args()


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    work = args.work_dir or tempfile.mkdtemp(prefix="preproc_")
    runner = MultiProcRunner(args.n_procs, args.memory_gb, work)
    began = time.time()
    runner.run(subject_workflow(args.subjects, args.sessions))
    logging.info("workflow finished in %.1f s, results in %s", time.time() - began, work)


if __name__ == "__main__":
    main()
