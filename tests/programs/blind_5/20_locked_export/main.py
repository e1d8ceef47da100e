import argparse
import json
import logging
import multiprocessing as mp
import tempfile
import time

import torch

from artifacts import ArtifactStore

log = logging.getLogger("export")


def fine_tune(name, root, args):
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s {name} %(message)s")
    torch.set_num_threads(1)
    store = ArtifactStore(root)
    w = torch.zeros(64, 64)
    for round_ in range(args.rounds):
        for _ in range(50):
            x = torch.randn(16, 64)
            w += 0.01 * (x.T @ (x - x @ w)) / 16
            time.sleep(0.01)
        log.info("round %d trained, waiting for the artifact store", round_)
        n = store.publish(f"{name}_{round_}", {f"layer{i}": w + i for i in range(args.layers)}, args.throttle)
        log.info("round %d published, %d artifacts", round_, n)


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--jobs", nargs="+", default=["base", "medium", "large", "tiny"])
    p.add_argument("--rounds", type=int, default=2)
    p.add_argument("--layers", type=int, default=12)
    p.add_argument("--throttle", type=float, default=0.8, help="pause between uploads, the share allows few writes")
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s main %(message)s")
    with tempfile.TemporaryDirectory(prefix="artifacts_") as root:
        procs = [mp.Process(target=fine_tune, args=(j, root, args)) for j in args.jobs]
        for q in procs:
            q.start()
        for q in procs:
            q.join()
        log.info("manifest has %d entries", len(json.loads(ArtifactStore(root).manifest.read_text())))
