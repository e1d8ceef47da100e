"""Multi-agent learning: parallel episodes, an episode buffer and a policy-gradient learner."""
import argparse
import logging

import torch

from controller import BasicMAC, RNNAgent
from runner import EpisodeBuffer, ParallelRunner


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--runners", type=int, default=2)
    p.add_argument("--agents", type=int, default=5)
    p.add_argument("--obs-dim", type=int, default=60)
    p.add_argument("--actions", type=int, default=9)
    p.add_argument("--hidden", type=int, default=128)
    p.add_argument("--episode-limit", type=int, default=50)
    p.add_argument("--buffer-size", type=int, default=5000)
    p.add_argument("--batch-size", type=int, default=4)
    p.add_argument("--t-max", type=int, default=8000000)
    p.add_argument("--lr", type=float, default=5e-4)
    p.add_argument("--seed", type=int, default=1)
    return p.parse_args()


def learn(mac, episodes, opt, rows):
    loss = 0.0
    for ep in episodes:
        mac.init_hidden(rows)
        last = torch.zeros_like(ep["actions"][0])
        returns = ep["reward"].flip(0).cumsum(0).flip(0)
        weight = (returns - returns.mean()) / (returns.std() + 1e-6)
        for obs, action, w in zip(ep["obs"], ep["actions"].detach(), weight):
            logp = torch.log_softmax(mac.forward(obs, last), -1)
            picked = (logp * action).sum(-1).view(len(w), -1).mean(1)
            loss = loss - (picked * w).mean()
            last = action
    loss = loss / (len(episodes) * len(weight))
    opt.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(mac.agent.parameters(), 10)
    opt.step()
    return loss.item()


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    agent = RNNAgent(args.obs_dim, args.hidden, args.actions)
    mac = BasicMAC(agent, args.hidden, args.actions)
    runner = ParallelRunner(args, mac)
    buffer = EpisodeBuffer(args.buffer_size, args.seed)
    opt = torch.optim.RMSprop(agent.parameters(), lr=args.lr)
    t_env, episode, loss = 0, 0, float("nan")
    while t_env < args.t_max:
        batch = runner.run(temperature=max(0.5, 1 - t_env / 50000))
        buffer.insert(batch)
        t_env += args.episode_limit * args.runners
        episode += 1
        if episode % 4 == 0 and len(buffer.episodes) >= args.batch_size:
            loss = learn(mac, buffer.sample(args.batch_size), opt, args.runners * args.agents)
        if episode % 10 == 0:
            ret = torch.stack(batch["reward"]).sum(0).mean().item()
            logging.info("t_env %d episodes %d return %.2f loss %.4f buffer %d", t_env, episode, ret, loss,
                         len(buffer.episodes))


if __name__ == "__main__":
    main()
