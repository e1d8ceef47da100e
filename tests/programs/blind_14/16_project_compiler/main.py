"""Compile and run all models of the project, layer by layer."""
import argparse
import logging

from graph import load_project
from runner import GraphRunnableTask


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--threads", type=int, default=3)
    p.add_argument("--models-per-layer", type=int, default=10)
    p.add_argument("--depth", type=int, default=60)
    p.add_argument("--rows", type=int, default=20000)
    p.add_argument("--seed", type=int, default=3)
    return p.parse_args()


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s main %(message)s")
    graph = load_project(args.seed, args.models_per_layer, args.depth)
    logging.info("found %d nodes", len(graph.nodes))
    task = GraphRunnableTask(graph, args.threads, args.rows)
    task.run()
    logging.info("done")


if __name__ == "__main__":
    main()
