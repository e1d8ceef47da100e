import logging
import multiprocessing as mp

import torch

from env_server import EnvServer

log = logging.getLogger("orchestrator")


class Orchestrator:
    def __init__(self, args):
        self.args = args
        self.policy = torch.nn.Sequential(torch.nn.Linear(24, 64), torch.nn.Tanh(), torch.nn.Linear(64, 4))
        self.opt = torch.optim.Adam(self.policy.parameters(), lr=1e-3)
        self.conns, self.procs = [], []
        for i in range(args.envs):
            ours, theirs = mp.Pipe()
            proc = EnvServer(i, theirs)
            proc.start()
            self.conns.append(ours)
            self.procs.append(proc)

    def rollout(self, obs):
        actions = self.policy(obs)
        for conn, action in zip(self.conns, actions):
            conn.send(("step", action.detach().numpy()))
        replies = [conn.recv() for conn in self.conns]
        loss = actions.pow(2).mean()
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        return torch.stack([torch.from_numpy(o) for o, _ in replies]), sum(r for _, r in replies)

    def evaluate(self, episodes):
        for conn in self.conns:
            conn.send(("eval", episodes))
        scores = []
        for i, conn in enumerate(self.conns):
            if not conn.poll(self.args.eval_timeout):
                raise TimeoutError(f"env {i} did not finish evaluation")
            scores.append(conn.recv())
        return sum(scores) / len(scores)

    def run(self):
        obs = torch.zeros(self.args.envs, 24)
        for update in range(1, self.args.updates + 1):
            obs, reward = self.rollout(obs)
            if update % 20 == 0:
                log.info("update %d reward %.3f", update, reward)
            if update % self.args.eval_every == 0:
                log.info("eval score %.3f", self.evaluate(episodes=20 * update // self.args.eval_every))
        self.shutdown()

    def shutdown(self):
        for conn in self.conns:
            conn.send(("close", None))
        for proc in self.procs:
            proc.join()
