import logging
import time

import torch

log = logging.getLogger("actor")


class NoisyChain:
    """Noisy linear system whose sensor sometimes loses a frame."""

    dropout_rate = 0.004

    def __init__(self, dim, frame_time):
        self.state = torch.zeros(dim)
        self.frame_time = frame_time

    def step(self, action):
        self.state = 0.95 * self.state + 0.1 * torch.randn_like(self.state) + 0.01 * action
        time.sleep(self.frame_time)
        dropout = torch.rand(()) < self.dropout_rate
        return self.state, -self.state.square().mean(), bool(dropout)


def run_actor(actor_id, ring, policy, frame_time, seed):
    torch.set_num_threads(1)
    torch.manual_seed(seed + actor_id)
    env = NoisyChain(ring.obs.shape[-1], frame_time)
    episodes = 0
    while True:
        slot = ring.free.get()
        ring.valid[slot] = True
        for t in range(ring.obs.shape[1]):
            with torch.no_grad():
                action = policy(env.state).tanh()
            obs, reward, dropout = env.step(action)
            ring.obs[slot, t] = obs
            ring.reward[slot, t] = reward
            if dropout:
                ring.valid[slot] = False
        ring.full.put((actor_id, slot))
        episodes += 1
        if episodes % 20 == 0:
            log.info("actor %d: %d unrolls", actor_id, episodes)
