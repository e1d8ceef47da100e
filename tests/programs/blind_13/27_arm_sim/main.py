"""Train an arm controller against a physics server that is reached through shared memory."""
import argparse
import logging
import multiprocessing as mp
import time

import torch

from physics import PhysicsClient, SharedBlock, physics_server

log = logging.getLogger("arm")


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--minutes", type=float, default=1.5)
    p.add_argument("--joints", type=int, default=7)
    p.add_argument("--episode-steps", type=int, default=150)
    p.add_argument("--rate", type=float, default=60.0, help="control steps per second")
    p.add_argument("--updates", type=int, default=60)
    p.add_argument("--clip", type=float, default=0.2)
    p.add_argument("--update-pause", type=float, default=0.04)
    return p.parse_args()


class Controller(torch.nn.Module):
    def __init__(self, joints):
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(3 * joints, 64), torch.nn.Tanh(), torch.nn.Linear(64, joints))
        self.log_std = torch.nn.Parameter(torch.full((joints,), -1.0))

    def dist(self, obs):
        return torch.distributions.Normal(self.net(obs), self.log_std.clamp(-2.5, 0.0).exp())


def episode(args, client, policy):
    observations, actions, rewards = [], [], []
    obs = client.reset()
    tick = time.monotonic()
    for _ in range(args.episode_steps):
        with torch.no_grad():
            action = policy.dist(obs).sample()
        observations.append(obs)
        actions.append(action)
        obs, reward = client.step(action)
        rewards.append(reward)
        tick += 1 / args.rate
        time.sleep(max(0.0, tick - time.monotonic()))
    return torch.stack(observations), torch.stack(actions), torch.tensor(rewards)


def update(args, policy, opt, batch):
    observations, actions, rewards = batch
    returns = rewards.flip(0).cumsum(0).flip(0)
    advantage = (returns - returns.mean()) / (returns.std() + 1e-6)
    with torch.no_grad():
        old = policy.dist(observations).log_prob(actions).sum(1)
    for _ in range(args.updates):
        ratio = (policy.dist(observations).log_prob(actions).sum(1) - old).exp()
        loss = -torch.min(ratio * advantage, ratio.clamp(1 - args.clip, 1 + args.clip) * advantage).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        time.sleep(args.update_pause)
    return loss.item()


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(message)s")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    ctx = mp.get_context("fork")
    block = SharedBlock(ctx, args.joints)
    server = ctx.Process(target=physics_server, args=(block,), name="physics")
    server.start()
    client = PhysicsClient(block)
    policy = Controller(args.joints)
    opt = torch.optim.Adam(policy.parameters(), lr=1e-3)
    end, n = time.monotonic() + 60 * args.minutes, 0
    while time.monotonic() < end:
        batch = episode(args, client, policy)
        n += 1
        log.info("episode %d return %.2f, loss %.3f", n, batch[2].sum().item(), update(args, policy, opt, batch))
    client.shutdown()
    server.join()
    log.info("done after %d episodes", n)


if __name__ == "__main__":
    main()
