import copy
import logging
import time

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

from env import FetchPush
from her import her_sampler
from replay_buffer import replay_buffer

log = logging.getLogger("ddpg")


def mlp(n_in, n_out, hidden=64):
    return nn.Sequential(nn.Linear(n_in, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(),
                         nn.Linear(hidden, n_out))


def sync_grads(network):
    flat = torch.cat([p.grad.reshape(-1) for p in network.parameters()])
    dist.all_reduce(flat)
    offset = 0
    for p in network.parameters():
        p.grad.copy_(flat[offset:offset + p.numel()].view_as(p) / dist.get_world_size())
        offset += p.numel()


class ddpg_agent:
    def __init__(self, args, rank):
        self.args = args
        self.rank = rank
        self.env = FetchPush(args.rollouts_per_cycle, seed=args.seed + rank)
        d, g, a = self.env.obs_dim, self.env.goal_dim, self.env.action_dim
        self.actor, self.critic = mlp(d + g, a), mlp(d + g + a, 1)
        for p in list(self.actor.parameters()) + list(self.critic.parameters()):
            dist.broadcast(p.data, src=0)
        self.actor_target, self.critic_target = copy.deepcopy(self.actor), copy.deepcopy(self.critic)
        self.actor_optim = torch.optim.Adam(self.actor.parameters(), lr=1e-3)
        self.critic_optim = torch.optim.Adam(self.critic.parameters(), lr=1e-3)
        sampler = her_sampler(args.replay_k, self.env.compute_reward)
        self.buffer = replay_buffer({"obs": d, "goal": g, "action": a, "max_timesteps": self.env.max_timesteps},
                                    args.buffer_size, sampler.sample_her_transitions)

    @torch.no_grad()
    def act(self, obs, goal, noise):
        x = torch.as_tensor(np.concatenate([obs, goal], 1), dtype=torch.float32)
        action = torch.tanh(self.actor(x)).numpy()
        action = np.clip(action + noise * np.random.randn(*action.shape), -1, 1)
        random = np.random.uniform(-1, 1, action.shape)
        pick = np.random.uniform(size=(len(action), 1)) < self.args.random_eps
        return np.where(pick, random, action)

    def rollout(self, noise=0.2):
        obs, ag, g = self.env.reset()
        ep_obs, ep_ag, ep_g, ep_actions = [obs], [ag], [], []
        for _ in range(self.env.max_timesteps):
            action = self.act(obs, g, noise)
            obs, ag, _ = self.env.step(action)
            ep_obs.append(obs)
            ep_ag.append(ag)
            ep_g.append(g)
            ep_actions.append(action)
        return [np.stack(x, axis=1) for x in (ep_obs, ep_ag, ep_g, ep_actions)]

    def update_network(self):
        tr = self.buffer.sample(self.args.batch_size)
        tensor = lambda *keys: torch.as_tensor(np.concatenate([tr[k] for k in keys], 1), dtype=torch.float32)
        x, x_next, actions, r = tensor("obs", "g"), tensor("obs_next", "g"), tensor("actions"), tensor("r")
        with torch.no_grad():
            q_next = self.critic_target(torch.cat([x_next, torch.tanh(self.actor_target(x_next))], 1))
            target = torch.clamp(r + self.args.gamma * q_next, -1 / (1 - self.args.gamma), 0)
        critic_loss = (target - self.critic(torch.cat([x, actions], 1))).pow(2).mean()
        pi = torch.tanh(self.actor(x))
        actor_loss = -self.critic(torch.cat([x, pi], 1)).mean() + pi.pow(2).mean()
        self.actor_optim.zero_grad()
        actor_loss.backward()
        sync_grads(self.actor)
        self.actor_optim.step()
        self.critic_optim.zero_grad()
        critic_loss.backward()
        sync_grads(self.critic)
        self.critic_optim.step()
        return critic_loss.item()

    def soft_update(self):
        with torch.no_grad():
            for target, source in ((self.actor_target, self.actor), (self.critic_target, self.critic)):
                for tp, p in zip(target.parameters(), source.parameters()):
                    tp.mul_(0.95).add_(p, alpha=0.05)

    def learn(self):
        for _ in range(self.args.n_init_rollouts):
            self.buffer.store_episode(self.rollout(noise=1.0))
        for epoch in range(self.args.n_epochs):
            t0 = time.time()
            for _ in range(self.args.n_cycles):
                self.buffer.store_episode(self.rollout())
                for _ in range(self.args.n_batches):
                    loss = self.update_network()
                self.soft_update()
            success = self.evaluate()
            if self.rank == 0:
                log.info("epoch %d: %.1f s, %d episodes stored, critic loss %.4f, success rate %.3f", epoch,
                         time.time() - t0, self.buffer.current_size, loss, success)

    def evaluate(self):
        _, ag, g, _ = self.rollout(noise=0.0)
        rate = torch.tensor([float((self.env.compute_reward(ag[:, -1], g[:, -1]) == 0).mean())])
        dist.all_reduce(rate)
        return rate.item() / dist.get_world_size()
