"""Labels jobs from a spool directory as they come in from the instrument."""
import argparse
import logging
import multiprocessing as mp
import tempfile

from labeler import Collector, labeler_main
from spool import feeder_main

log = logging.getLogger("spool.main")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--labelers", type=int, default=2)
    parser.add_argument("--jobs", type=int, default=11)
    parser.add_argument("--gap", type=float, default=11.0, help="seconds between exposures")
    parser.add_argument("--patience", type=float, default=3.0)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(message)s")
    with tempfile.TemporaryDirectory(prefix="spool_") as root:
        labels = mp.Queue()
        processes = [mp.Process(target=labeler_main, args=(root, labels, args.patience), name=f"labeler-{i}", daemon=True)
                     for i in range(args.labelers)]
        processes.append(mp.Process(target=feeder_main, args=(root, args.jobs, args.gap), name="instrument", daemon=True))
        for process in processes:
            process.start()
        table = Collector(labels, poll=5.0).run(args.jobs)
        log.info("labels: %s", dict(sorted(table.items())))
        for process in processes:
            process.terminate()


if __name__ == "__main__":
    main()
