import argparse
import logging
import multiprocessing

from typing_core import type_gene

log = logging.getLogger("genotype")

PANEL = ["A", "B", "C", "DPA1", "DPB1", "DQA1", "DQB1", "DRA", "DRB1", "DRB3", "E", "F", "G", "H", "MICA", "MICB",
         "TAP1", "TAP2"]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--genes", nargs="+", default=PANEL)
    p.add_argument("-p", "--threads", type=int, default=2)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    jobs = []
    with multiprocessing.Pool(args.threads) as pool:
        for i, gene in enumerate(args.genes):
            depth = 40 if gene == "DRB3" else 3000 + 250 * i
            jobs.append((gene, pool.apply_async(type_gene, (gene, depth))))
        for gene, job in jobs:
            _, (allele, prob) = job.get()
            log.info("%s: %s (%.3f)", gene, allele, prob)
        pool.close()
        pool.join()
    log.info("typed %d genes", len(jobs))


if __name__ == "__main__":
    main()
