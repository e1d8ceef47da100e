"""Virtual screening of a ligand library on all cores."""
import argparse
import logging
import multiprocessing as mp

from scoring import PoseError, score_ligand

log = logging.getLogger("screen")


def make_library(n):
    return [{"name": f"ZINC{100000 + 37 * i}", "atoms": 20 + i % 30, "spread": 1.5 + (3.5 if i == 23 else 0.0)}
            for i in range(n)]


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--ligands", type=int, default=60)
    p.add_argument("--workers", type=int, default=3)
    p.add_argument("--top", type=int, default=5)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")

    library = make_library(args.ligands)
    log.info("screening %d ligands with %d workers", len(library), args.workers)
    with mp.Pool(args.workers) as pool:
        pending = [(lig["name"], pool.apply_async(score_ligand, (lig,))) for lig in library]
        scores, skipped = {}, 0
        for name, handle in pending:
            try:
                _, scores[name] = handle.get()
            except PoseError as exc:
                skipped += 1
                log.warning("skipped: %s", exc)
            if len(scores) % 10 == 0:
                log.info("%d scored", len(scores))
    for name in sorted(scores, key=scores.get)[: args.top]:
        log.info("%s %.3f", name, scores[name])
    log.info("done, %d skipped", skipped)


if __name__ == "__main__":
    main()
