import argparse

import torch.multiprocessing as mp

from actor import actor_main
from server import server_main


def main():
    parser = argparse.ArgumentParser(description="actors with a central inference process")
    parser.add_argument("--actors", type=int, default=3)
    parser.add_argument("--obs-dim", type=int, default=12)
    parser.add_argument("--act-dim", type=int, default=6)
    parser.add_argument("--report-every", type=float, default=2.0)
    args = parser.parse_args()

    ctx = mp.get_context("fork")
    pipes = [ctx.Pipe() for _ in range(args.actors)]
    server = ctx.Process(
        target=server_main,
        args=([here for here, _ in pipes], args.obs_dim, args.act_dim, args.report_every),
        name="inference-server",
        daemon=True,
    )
    server.start()
    actors = []
    for i, (_, there) in enumerate(pipes):
        proc = ctx.Process(target=actor_main, args=(i, there, args.report_every), name=f"actor-{i}", daemon=True)
        proc.start()
        actors.append(proc)
    for proc in actors:
        proc.join()


if __name__ == "__main__":
    main()
