import logging
import os
import threading

import torch
from torch import nn

from heartbeat import HeartbeatFile

device = "cuda" if torch.cuda.is_available() else "cpu"


class Policy(nn.Module):
    def __init__(self, obs=48, width=256, actions=6):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(obs, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh())
        self.pi, self.v = nn.Linear(width, actions), nn.Linear(width, 1)

    def forward(self, obs):
        h = self.body(obs)
        return self.pi(h), self.v(h).squeeze(-1)


class RolloutWorker:
    def __init__(self, worker_id, conn, cfg, beat_dir):
        self.id, self.conn, self.cfg = worker_id, conn, cfg
        self.is_master = worker_id == 0
        self.policy = Policy().to(device).eval()
        self.heartbeat = HeartbeatFile(beat_dir, worker_id)
        self.heartbeat.record()
        self.epoch = 0

    def _maybe_record_heartbeat(self):
        if not self.is_master:
            return
        if self.epoch % self.cfg["heartbeat_every"] == 0:
            self.heartbeat.record()

    def _export_stats(self):
        if self.is_master and self.epoch % 50 == 0:
            logging.info("worker %d finished epoch %d", self.id, self.epoch)

    @torch.no_grad()
    def collect(self):
        obs = torch.randn(self.cfg["envs"], 48, device=device)
        seen, actions = [], []
        for _ in range(self.cfg["horizon"]):
            logits, _ = self.policy(obs)
            act = torch.distributions.Categorical(logits=logits).sample()
            seen.append(obs)
            actions.append(act)
            obs = 0.95 * obs + 0.05 * torch.randn_like(obs) + 0.01 * act.unsqueeze(-1)
        return torch.stack(seen).cpu().numpy(), torch.stack(actions).cpu().numpy()

    def run(self):
        while True:
            self.conn.send(self.collect())
            weights = self.conn.recv()
            self.policy.load_state_dict({k: torch.from_numpy(v) for k, v in weights.items()})
            self.epoch += 1
            self._maybe_record_heartbeat()
            self._export_stats()


def worker_main(worker_id, conn, cfg, beat_dir):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    stop = threading.Timer(cfg["walltime"], os._exit, (0,))
    stop.daemon = True
    stop.start()
    torch.set_num_threads(1)
    torch.manual_seed(worker_id)
    RolloutWorker(worker_id, conn, cfg, beat_dir).run()
