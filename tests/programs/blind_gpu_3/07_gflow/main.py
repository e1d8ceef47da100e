"""Fragment GFlowNet: the trainer samples on the GPU, oracle processes score the molecules."""
import argparse
import logging
import os
import threading
import time

import numpy as np
import torch
import torch.multiprocessing as mp

from algo import FragmentPolicy, TrajectoryBalance
from replay import ReplayBuffer

log = logging.getLogger("gfn")


def oracle_worker(worker_id, args, requests, answers):
    """Stands in for the docking service: one answer per chunk of molecules."""
    limit_walltime(args.time_limit)
    rng = np.random.default_rng(17)
    weights = rng.normal(size=args.num_fragments)
    while True:
        job, molecules = requests.get()
        time.sleep(args.dock_time)
        scores = np.tanh(molecules @ weights / 4.0)
        answers.put((job, scores.astype(np.float32)))


class OracleClient:
    def __init__(self, args):
        ctx = mp.get_context("spawn")
        self.requests, self.answers = ctx.Queue(), ctx.Queue()
        self.workers = [ctx.Process(target=oracle_worker, args=(i, args, self.requests, self.answers), daemon=True)
                        for i in range(args.oracles)]
        for w in self.workers:
            w.start()

    def log_rewards(self, finals, beta=4.0):
        chunks = np.array_split(finals, len(self.workers))
        for job, chunk in enumerate(chunks):
            self.requests.put((job, chunk))
        parts = dict(self.answers.get() for _ in chunks)
        return beta * np.concatenate([parts[j] for j in range(len(chunks))])


class Trainer:
    def __init__(self, args, device):
        self.args, self.device = args, device
        self.policy = FragmentPolicy(args.num_fragments, args.hidden, args.depth).to(device)
        self.algo = TrajectoryBalance(self.policy, args.num_fragments, args.max_len, device)
        self.optim = torch.optim.Adam(self.policy.parameters(), lr=args.lr)
        self.replay = ReplayBuffer(args.replay_capacity, args.replay_warmup, args.seed)
        self.oracle = OracleClient(args)

    def collect(self):
        trajectories = self.algo.create_training_data(self.args.batch)
        finals = torch.stack([t["final"] for t in trajectories]).detach().cpu().numpy()
        for traj, log_reward in zip(trajectories, self.oracle.log_rewards(finals)):
            traj["log_reward"] = float(log_reward)
            self.replay.push(traj)
        return trajectories

    def train_step(self):
        batch = self.collect()
        if self.replay.ready():
            batch = batch + self.replay.sample(self.args.num_from_replay)
        loss = self.algo.compute_loss(batch)
        self.optim.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.policy.parameters(), 5.0)
        self.optim.step()
        return loss.item(), float(np.mean([t["log_reward"] for t in batch]))

    def run(self):
        for it in range(self.args.iterations):
            loss, reward = self.train_step()
            if it % self.args.log_every == 0:
                log.info("it %d loss %.3f mean log reward %.3f replay %d", it, loss, reward, len(self.replay))

def limit_walltime(seconds):
    timer = threading.Timer(seconds, lambda: os._exit(0))
    timer.daemon = True
    timer.start()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--num-fragments", type=int, default=72)
    p.add_argument("--max-len", type=int, default=12)
    p.add_argument("--hidden", type=int, default=768)
    p.add_argument("--depth", type=int, default=3)
    p.add_argument("--batch", type=int, default=32)
    p.add_argument("--num-from-replay", type=int, default=32)
    p.add_argument("--replay-capacity", type=int, default=100000)
    p.add_argument("--replay-warmup", type=int, default=256)
    p.add_argument("--oracles", type=int, default=2)
    p.add_argument("--dock-time", type=float, default=0.25)
    p.add_argument("--lr", type=float, default=1e-4)
    p.add_argument("--iterations", type=int, default=100000)
    p.add_argument("--log-every", type=int, default=20)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--time-limit", type=float, default=120)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    limit_walltime(args.time_limit)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    Trainer(args, device).run()


if __name__ == "__main__":
    main()
