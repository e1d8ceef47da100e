import logging
import time
from multiprocessing.connection import wait

import numpy as np
import torch
from torch import nn

from episode_stats import EpisodeStats

log = logging.getLogger("server")


class InferenceServer:
    def __init__(self, conns, obs_dim, act_dim, report_every):
        self.conns = conns
        self.net = nn.Sequential(nn.Linear(obs_dim, 32), nn.Tanh(), nn.Linear(32, act_dim), nn.Tanh())
        self.report_every = report_every
        self.stats = EpisodeStats()
        self.running = {}

    @torch.inference_mode()
    def act(self, batch):
        return self.net(torch.from_numpy(batch)).numpy()

    def record(self, index, obs, reward, done):
        observations, total = self.running.setdefault(index, ([], 0.0))
        observations.append(obs)
        self.running[index] = (observations, total + reward)
        if done:
            self.stats.add(*self.running.pop(index))

    def serve(self):
        torch.set_num_threads(1)
        self.stats.start()
        requests, since = 0, time.time()
        while True:
            ready = wait(self.conns)
            messages = [conn.recv() for conn in ready]
            actions = self.act(np.stack([obs for _, obs, _, _ in messages]))
            for conn, action in zip(ready, actions):
                conn.send(action)
            for message in messages:
                self.record(*message)
            requests += len(messages)
            now = time.time()
            if now - since >= self.report_every:
                log.info("%.0f requests/s", requests / (now - since))
                requests, since = 0, now


def server_main(conns, obs_dim, act_dim, report_every):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    InferenceServer(conns, obs_dim, act_dim, report_every).serve()
