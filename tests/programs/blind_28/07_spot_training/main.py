import argparse
import logging
import tempfile

import torch.distributed as dist
import torch.multiprocessing as mp

from cluster import NodeAgent, parse_notices
from trainer import rank_main


def main():
    parser = argparse.ArgumentParser(description="data parallel training on spot instances")
    parser.add_argument("--world-size", type=int, default=3)
    parser.add_argument("--ranks-per-node", type=int, default=2)
    parser.add_argument("--reclaim", nargs="*", default=["node1@6"], help="node@seconds")
    parser.add_argument("--max-steps", type=int, default=100000)
    parser.add_argument("--data-time", type=float, default=0.03)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")

    notices = parse_notices(args.reclaim)
    ctx = mp.get_context("fork")
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    agents = {}
    with tempfile.TemporaryDirectory(prefix="spot-") as workdir:
        ranks = []
        for rank in range(args.world_size):
            node = f"node{rank // args.ranks_per_node}"
            proc = ctx.Process(target=rank_main, args=(rank, args, store.port, workdir), name=f"rank-{rank}", daemon=True)
            proc.start()
            agents.setdefault(node, NodeAgent(node, notices.get(node))).adopt(proc)
            ranks.append(proc)
        for agent in agents.values():
            agent.watch()
        for proc in ranks:
            proc.join()


if __name__ == "__main__":
    main()
