import argparse
import logging

import torch.multiprocessing as mp

from trainer import fit_scene


def parse_args():
    p = argparse.ArgumentParser(description="fit several scenes with gaussians, one process per scene")
    p.add_argument("--scenes", nargs="+", default=["garden", "bicycle"])
    p.add_argument("--gaussians", type=int, default=6000)
    p.add_argument("--features", type=int, default=24)
    p.add_argument("--image-size", type=int, default=160)
    p.add_argument("--rays", type=int, default=40)
    p.add_argument("--densify", type=int, default=600)
    p.add_argument("--densify-every", type=int, default=40)
    p.add_argument("--report-every", type=int, default=100)
    p.add_argument("--iterations", type=int, default=100000)
    p.add_argument("--seed", type=int, default=0)
    return p.parse_args()


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s main %(message)s")
    ctx = mp.get_context("fork")
    results = ctx.Queue()
    trainers = [ctx.Process(target=fit_scene, args=(s, args, results), name=s, daemon=True) for s in args.scenes]
    for proc in trainers:
        proc.start()
    while any(p.is_alive() for p in trainers):
        scene, iteration, loss, count, seconds = results.get()
        logging.info("%s iteration %d loss %.4f, %d gaussians, %.1f s", scene, iteration, loss, count, seconds)


if __name__ == "__main__":
    main()
