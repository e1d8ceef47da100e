import argparse
import logging

from reranker import Reranker


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--docs", type=int, default=80000)
    p.add_argument("--dim", type=int, default=96)
    p.add_argument("--workers", type=int, default=3)
    p.add_argument("--queries", type=int, default=6)
    p.add_argument("--rounds", type=int, default=100)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    Reranker(args.docs, args.dim, args.workers).run(args.queries, args.rounds)


if __name__ == "__main__":
    main()
