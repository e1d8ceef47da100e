import logging
import time

import torch
import torch.distributed as dist

from policy import Policy
from rollout import RolloutBuffer, group_advantages

log = logging.getLogger("grpo")


def scatter_batch(samples, world_size):
    """Contiguous shares of the batch, the same number of samples for every rank."""
    per_rank = len(samples) // world_size
    return [samples[i * per_rank:(i + 1) * per_rank] for i in range(world_size)]


class GRPOTrainer:
    def __init__(self, rank, args):
        self.rank = rank
        self.args = args
        self.world_size = args.world_size
        torch.manual_seed(args.seed)
        self.policy = Policy()
        self.optimizer = torch.optim.AdamW(self.policy.parameters(), lr=args.lr)
        self.buffer = RolloutBuffer(args.prompts, args.group_size, 512, args.seed)

    def receive_share(self):
        shares = None
        if self.rank == 0:
            samples = group_advantages(self.buffer.next_batch(), self.args.group_size)
            shares = scatter_batch(samples, self.world_size)
        out = [None]
        dist.scatter_object_list(out, shares, src=0)
        return out[0]

    def compute_gradients(self, share):
        self.optimizer.zero_grad()
        for sample in share:
            logp = self.policy(sample["tokens"][None])
            loss = -(sample["advantage"] * logp).mean() / len(share)
            loss.backward()

    def sync_gradients(self):
        flat = torch.cat([p.grad.flatten() for p in self.policy.parameters()])
        dist.all_reduce(flat)
        flat /= self.world_size
        offset = 0
        for p in self.policy.parameters():
            p.grad.copy_(flat[offset:offset + p.numel()].view_as(p))
            offset += p.numel()

    def step(self, number):
        share = self.receive_share()
        began = time.time()
        self.compute_gradients(share)
        self.sync_gradients()
        torch.nn.utils.clip_grad_norm_(self.policy.parameters(), 1.0)
        self.optimizer.step()
        if number % self.args.log_every == 0:
            reward = sum(s["reward"] for s in share) / len(share)
            log.info("step %d: %d samples, reward %.2f, step time %.2f s", number, len(share), reward,
                     time.time() - began)


def run(rank, args):
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s [rank {rank}] %(message)s")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{args.port}", rank=rank,
                            world_size=args.world_size)
    trainer = GRPOTrainer(rank, args)
    for number in range(args.steps):
        trainer.step(number)
    dist.destroy_process_group()
