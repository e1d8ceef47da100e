import argparse
import logging
import multiprocessing as mp
import tempfile

from hub import snapshot_download

log = logging.getLogger("suite")


def prefetch(repo, cache):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    snapshot_download(repo, cache)


def run_test(name, repo, cache):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    path = snapshot_download(repo, cache)
    total = sum(p.stat().st_size for p in path.glob("*.bin"))
    log.info("%s: loaded %d bytes from %s", name, total, path)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--repo", default="Qwen/Qwen3-30B-A3B")
    p.add_argument("--prefetch-budget", type=float, default=4.0, help="seconds to spend on warming the cache")
    p.add_argument("--tests", nargs="+", default=["test_moe_ep", "test_moe_tp"])
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    with tempfile.TemporaryDirectory(prefix="hub-cache-") as cache:
        warm = mp.Process(target=prefetch, args=(args.repo, cache), name="prefetch")
        warm.start()
        warm.join(args.prefetch_budget)
        if warm.is_alive():
            log.info("prefetch over budget, the tests will fetch the rest themselves")
            warm.kill()
            warm.join()
        procs = [mp.Process(target=run_test, args=(t, args.repo, cache), name=t) for t in args.tests]
        for proc in procs:
            proc.start()
        for proc in procs:
            proc.join()
            log.info("%s exit code %s", proc.name, proc.exitcode)


if __name__ == "__main__":
    main()
