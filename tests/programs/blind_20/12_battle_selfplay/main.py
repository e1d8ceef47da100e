"""Double DQN on a turn based battle environment, with a periodic evaluation."""
import argparse
import collections
import logging
import random
import signal
import time

import torch
import torch.nn.functional as F
from torch import nn

from player_env import EnvPlayer

log = logging.getLogger("dqn_training")


class QNet(nn.Module):
    def __init__(self, n_obs, n_actions):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(n_obs, 128), nn.ELU(),
                                 nn.Linear(128, 128), nn.ELU(),
                                 nn.Linear(128, n_actions))

    def forward(self, x):
        return self.net(x)


class Agent:
    """Holds the position in an environment, as in the pl_bolts DQN example."""

    def __init__(self, env, net, rng):
        self.env = env
        self.net = net
        self.rng = rng
        self.reset()

    def reset(self):
        self.state = self.env.reset()

    @torch.no_grad()
    def act(self, epsilon):
        if self.rng.random() < epsilon:
            return self.rng.randrange(self.env.n_actions)
        return int(self.net(torch.tensor([self.state])).argmax())

    def play_step(self, epsilon, replay=None):
        action = self.act(epsilon)
        nxt, reward, done, info = self.env.step(action)
        if replay is not None:
            replay.append((self.state, action, reward, float(done), nxt))
        self.state = nxt
        if done and replay is not None:
            self.reset()
        return reward, done, info


class Evaluator:
    def __init__(self, env, net, rng, episodes):
        self.env, self.net, self.rng, self.episodes = env, net, rng, episodes

    def run(self):
        agent = Agent(self.env, self.net, self.rng)
        wins, total = 0, 0.0
        for _ in range(self.episodes):
            agent.reset()
            done = False
            while not done:
                reward, done, info = agent.play_step(epsilon=0.0)
                total += reward
            wins += int(info["won"])
        return wins / self.episodes, total / self.episodes


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=200_000)
    p.add_argument("--batch-size", type=int, default=64)
    p.add_argument("--warmup", type=int, default=100)
    p.add_argument("--eval-every", type=int, default=300)
    p.add_argument("--eval-episodes", type=int, default=20)
    p.add_argument("--sync-every", type=int, default=100)
    p.add_argument("--gamma", type=float, default=0.95)
    p.add_argument("--seed", type=int, default=3)
    p.add_argument("--walltime", type=int, default=130)
    return p.parse_args()


def learn(net, target, opt, batch, gamma):
    state, action, reward, done, nxt = (torch.tensor(x) for x in zip(*batch))
    q = net(state).gather(1, action[:, None]).squeeze(1)
    with torch.no_grad():
        best = net(nxt).argmax(1, keepdim=True)
        goal = reward + gamma * (1 - done) * target(nxt).gather(1, best).squeeze(1)
    loss = F.smooth_l1_loss(q, goal)
    opt.zero_grad()
    loss.backward()
    opt.step()
    return float(loss)


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    signal.alarm(args.walltime)
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    rng = random.Random(args.seed)

    train_env = EnvPlayer("train", args.seed, args.walltime)
    eval_env = EnvPlayer("eval", args.seed + 1, args.walltime)
    net, target = (QNet(EnvPlayer.n_obs, EnvPlayer.n_actions) for _ in range(2))
    target.load_state_dict(net.state_dict())
    opt = torch.optim.Adam(net.parameters(), lr=2.5e-4)
    replay = collections.deque(maxlen=10_000)

    agent = Agent(train_env, net, rng)
    evaluator = Evaluator(eval_env, net, rng, args.eval_episodes)
    loss, t0 = 0.0, time.monotonic()
    for step in range(1, args.steps + 1):
        epsilon = max(0.05, 1.0 - step / 10_000)
        agent.play_step(epsilon, replay)
        if step > args.warmup:
            loss = learn(net, target, opt, rng.sample(replay, args.batch_size), args.gamma)
        if step % args.sync_every == 0:
            target.load_state_dict(net.state_dict())
            log.info("step %d loss %.4f win rate %.2f (%.0f steps/s)", step, loss,
                     train_env.win_rate(), step / (time.monotonic() - t0))
        if step % args.eval_every == 0:
            log.info("evaluating on %d battles", args.eval_episodes)
            win_rate, mean_return = evaluator.run()
            log.info("evaluation at %d: win rate %.2f return %.2f", step, win_rate, mean_return)


if __name__ == "__main__":
    main()
