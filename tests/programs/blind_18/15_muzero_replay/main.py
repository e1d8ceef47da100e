import argparse
import logging
import queue
import sys
import time
from dataclasses import dataclass

import numpy as np
import torch
import torch.multiprocessing as mp
import torch.nn as nn

from replay_buffer import ReplayBuffer
from self_play import play_game, self_play_loop


@dataclass
class Config:
    observation_size: int = 27
    action_space: int = 9
    batch_size: int = 256
    replay_buffer_size: int = 15000
    resume_games: int = 9000
    td_steps: int = 5
    discount: float = 0.997
    per_alpha: float = 0.5
    lr: float = 3e-4
    prefetch: int = 2
    num_workers: int = 2
    max_seconds: float = 138.0


def setup_logging(name):
    logging.basicConfig(stream=sys.stdout, level=logging.INFO, force=True,
                        format="%(asctime)s " + name + " %(message)s")
    return logging.getLogger(name)


def load_saved_games(config):
    """Games of the previous run (kept in the checkpoint)."""
    rng = np.random.default_rng(5)
    return [play_game(rng, config) for _ in range(config.resume_games)]


def replay_server(config, games, batches, updates, stop):
    log = setup_logging("replay")
    buffer = ReplayBuffer(config)
    for g in load_saved_games(config):
        buffer.save_game(g)
    log.info("resumed with %d games, %d positions", len(buffer.buffer), buffer.total_samples)
    while not stop.is_set():
        try:
            while True:
                buffer.save_game(games.get_nowait())
        except queue.Empty:
            pass
        try:
            while True:
                buffer.update_priorities(*updates.get_nowait())
        except queue.Empty:
            pass
        batch = buffer.get_batch()
        while not stop.is_set():
            try:
                batches.put(batch, timeout=1.0)
                break
            except queue.Full:
                continue


class Network(nn.Module):
    def __init__(self, config, hidden=128):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(config.observation_size, hidden), nn.ReLU(),
                                  nn.Linear(hidden, hidden), nn.ReLU())
        self.value = nn.Linear(hidden, 1)
        self.policy = nn.Linear(hidden, config.action_space)

    def forward(self, obs):
        h = self.body(obs)
        return self.value(h).squeeze(-1), self.policy(h)


class Trainer:
    def __init__(self, config, log):
        self.config, self.log = config, log
        self.model = Network(config)
        self.opt = torch.optim.Adam(self.model.parameters(), lr=config.lr)
        self.training_step = 0

    def update_weights(self, batch):
        obs, actions, values, weights = (torch.from_numpy(np.asarray(x)) for x in batch)
        v, logits = self.model(obs)
        value_loss = (v - values).pow(2)
        policy_loss = nn.functional.cross_entropy(logits, actions.long(), reduction="none")
        loss = ((value_loss + 0.25 * policy_loss) * weights).mean()
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        self.training_step += 1
        priorities = (v - values).detach().abs().pow(self.config.per_alpha).numpy()
        return priorities, loss.item()

    def run(self, batches, updates, started):
        mark, mark_step = time.time(), 0
        while time.time() - started < self.config.max_seconds:
            index, batch = batches.get()
            priorities, loss = self.update_weights(batch)
            updates.put((priorities, index))
            if time.time() - mark > 5:
                rate = (self.training_step - mark_step) / (time.time() - mark)
                self.log.info("training step %d loss %.4f (%.1f steps/s)",
                              self.training_step, loss, rate)
                mark, mark_step = time.time(), self.training_step


def main():
    p = argparse.ArgumentParser("muzero")
    p.add_argument("--batch-size", type=int, default=256)
    p.add_argument("--num-workers", type=int, default=2)
    args = p.parse_args()
    config = Config(batch_size=args.batch_size, num_workers=args.num_workers)
    torch.set_num_threads(1)
    started = time.time()
    log = setup_logging("trainer")
    ctx = mp.get_context("fork")
    games, updates, stop = ctx.Queue(), ctx.Queue(), ctx.Event()
    batches = ctx.Queue(maxsize=config.prefetch)
    procs = [ctx.Process(target=replay_server, name="replay",
                         args=(config, games, batches, updates, stop), daemon=True)]
    procs += [ctx.Process(target=self_play_loop, name=f"self_play_{i}",
                          args=(i, config, games, stop), daemon=True)
              for i in range(config.num_workers)]
    for proc in procs:
        proc.start()
    Trainer(config, log).run(batches, updates, started)
    stop.set()
    time.sleep(1.0)
    for proc in procs:
        proc.terminate()


if __name__ == "__main__":
    main()
