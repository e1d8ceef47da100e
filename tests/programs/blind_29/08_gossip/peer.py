"""One peer: python peer.py RANK WORLD PORT [options]"""
import argparse
import collections
import logging
import time

import torch
import torch.distributed as dist
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from pairing import partners

log = logging.getLogger("peer")


def series(generator, batch, length=64):
    """Noisy sums of waves; the task is to continue them."""
    t = torch.arange(length + 8) * 0.1
    freq = torch.rand(batch, 3, 1, generator=generator) * 3 + 0.2
    wave = torch.sin(freq * t + torch.rand(batch, 3, 1, generator=generator) * 6.28).sum(1)
    wave = wave + 0.05 * torch.randn(wave.shape, generator=generator)
    return wave[:, :length], wave[:, length:]


class Peer:
    def __init__(self, rank, world, args):
        self.rank, self.world, self.args = rank, world, args
        torch.manual_seed(0)
        self.model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.Linear(256, 8))
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=args.lr)
        self.generator = torch.Generator().manual_seed(100 + rank)
        self.history = collections.deque(maxlen=args.history)

    def local_steps(self, seconds):
        """As many steps as this peer manages in the time."""
        end, steps, loss = time.monotonic() + seconds, 0, None
        while time.monotonic() < end:
            if self.history and steps % 4 == 3:
                x, y = self.history[int(torch.randint(len(self.history), (), generator=self.generator))]
            else:
                x, y = series(self.generator, self.args.batch_size)
                self.history.append((x, y))
            loss = (self.model(x) - y).square().mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            steps += 1
            time.sleep(self.args.pace * (1 + self.rank))
        return steps, loss.item()

    def exchange(self, partner):
        mine = parameters_to_vector(self.model.parameters()).detach()
        theirs = torch.empty_like(mine)
        requests = [dist.isend(mine, partner), dist.irecv(theirs, partner)]
        for request in requests:
            request.wait()
        vector_to_parameters((mine + theirs) / 2, self.model.parameters())
        return (mine - theirs).norm().item()

    @torch.no_grad()
    def validate(self, seconds):
        """Only the first peer validates, on as much data as fits in the time."""
        end, errors = time.monotonic() + seconds, []
        generator = torch.Generator().manual_seed(7)
        while time.monotonic() < end:
            x, y = series(generator, 256)
            errors.append((self.model(x) - y).square().mean().item())
            time.sleep(0.02)
        return sum(errors) / len(errors), len(errors)

    def run(self):
        for round_index in range(self.args.rounds):
            partner = partners(self.world, round_index)[self.rank]
            steps, loss = self.local_steps(self.args.round_seconds)
            if partner is None:
                log.info("round %d: %d steps, loss %.4f, no partner in this round", round_index, steps, loss)
            else:
                distance = self.exchange(partner)
                log.info("round %d: %d steps, loss %.4f, averaged with %d (distance %.3f)",
                         round_index, steps, loss, partner, distance)
            if (round_index + 1) % self.args.validate_every == 0:
                if self.rank == 0:
                    error, batches = self.validate(self.args.validate_seconds)
                    log.info("validation error %.4f (%d batches)", error, batches)
                dist.barrier()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("rank", type=int)
    parser.add_argument("world", type=int)
    parser.add_argument("port", type=int)
    parser.add_argument("--rounds", type=int, default=100000)
    parser.add_argument("--round-seconds", type=float, default=2.0)
    parser.add_argument("--validate-every", type=int, default=6)
    parser.add_argument("--validate-seconds", type=float, default=9.0)
    parser.add_argument("--history", type=int, default=300, help="batches kept for replay")
    parser.add_argument("--batch-size", type=int, default=512)
    parser.add_argument("--pace", type=float, default=0.015)
    parser.add_argument("--lr", type=float, default=1e-3)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s [peer {args.rank}] %(message)s")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{args.port}", rank=args.rank, world_size=args.world)
    Peer(args.rank, args.world, args).run()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
