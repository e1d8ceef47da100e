"""Train a flow model on several CPU processes."""
import argparse
import logging
import os
import socket
import tempfile
import time

import torch
import torch.multiprocessing as mp

from distributed import average_gradients, broadcast_parameters, init_distributed, reduce_scalar
from flow import Flow, flow_loss

log = logging.getLogger("vocoder")


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--world-size", type=int, default=3)
    parser.add_argument("--steps", type=int, default=100000)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--lr", type=float, default=5e-4)
    parser.add_argument("--report-every", type=int, default=5)
    parser.add_argument("--save-every", type=int, default=200)
    parser.add_argument("--max-seconds", type=float, default=125.0)
    return parser.parse_args()


class RingMixture:
    """Points on noisy rings, lifted to the channel dimension of the flow."""

    def __init__(self, channels, seed):
        self.gen = torch.Generator().manual_seed(seed)
        self.lift = torch.randn(2, channels, generator=torch.Generator().manual_seed(0))

    def batch(self, n):
        radius = 1.0 + torch.randint(0, 3, (n,), generator=self.gen)
        angle = 2 * torch.pi * torch.rand(n, generator=self.gen)
        points = torch.stack([radius * angle.cos(), radius * angle.sin()], dim=1)
        return points @ self.lift + 0.1 * torch.randn(n, self.lift.shape[1], generator=self.gen)


def run(rank, args, port, outdir):
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s rank{rank} %(message)s")
    torch.set_num_threads(1)
    init_distributed(rank, args.world_size, port)
    torch.manual_seed(1)
    model = Flow()
    broadcast_parameters(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    data = RingMixture(model.channels, seed=70 + rank)
    deadline = time.time() + args.max_seconds
    window = time.time()
    for step in range(args.steps):
        x = data.batch(args.batch_size)
        z, logdet = model(x)
        loss = flow_loss(z, logdet)
        optimizer.zero_grad()
        loss.backward()
        average_gradients(model)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if (step + 1) % args.report_every == 0:
            mean_loss = reduce_scalar(loss.item())
            late = reduce_scalar(float(time.time() > deadline))
            if rank == 0:
                rate = args.report_every * args.batch_size * args.world_size / (time.time() - window)
                log.info("step %d loss %.4f %.0f samples/s", step + 1, mean_loss, rate)
            window = time.time()
            if late > 0:
                break
        if rank == 0 and (step + 1) % args.save_every == 0:
            torch.save(model.state_dict(), os.path.join(outdir, "flow.pt"))


def main():
    args = parse_args()
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="flow_") as outdir:
        mp.spawn(run, args=(args, port, outdir), nprocs=args.world_size, join=True)


if __name__ == "__main__":
    main()
