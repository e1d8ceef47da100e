import logging
import multiprocessing as mp
import time

import numpy as np
import torch
import torch.nn.functional as F

from model import PhasicNet
from workers import actor, evaluate

log = logging.getLogger("learner")


class PhasicLearner:
    def __init__(self, args):
        self.args = args
        torch.manual_seed(args.seed)
        self.net = PhasicNet(args.size, args.width)
        self.optim = torch.optim.Adam(self.net.parameters(), lr=args.lr)
        self.aux_optim = torch.optim.Adam(self.net.parameters(), lr=args.lr)
        self.out = mp.Queue()
        self.weights = [mp.Queue() for _ in range(args.actors)]
        self.actors = [mp.Process(target=actor, args=(i, args, w, self.out), daemon=True, name=f"actor-{i}")
                       for i, w in enumerate(self.weights)]
        self.memory = []

    def state(self):
        return {k: v.numpy().copy() for k, v in self.net.state_dict().items()}

    def collect(self):
        state = self.state()
        for w in self.weights:
            w.put(state)
        got = dict(self.out.get() for _ in self.actors)
        return [got[i] for i in sorted(got)]

    def returns(self, rew):
        out, run = np.zeros_like(rew), np.zeros_like(rew[0])
        for t in reversed(range(len(rew))):
            run = rew[t] + self.args.gamma * run
            out[t] = run
        return out

    def policy_update(self, parts):
        obs = torch.from_numpy(np.concatenate([p["obs"].reshape(-1, *p["obs"].shape[2:]) for p in parts]))
        act = torch.from_numpy(np.concatenate([p["act"].ravel() for p in parts]))
        old = torch.from_numpy(np.concatenate([p["logp"].ravel() for p in parts]))
        ret = torch.from_numpy(np.concatenate([self.returns(p["rew"]).ravel() for p in parts]))
        for idx in torch.randperm(len(obs)).split(self.args.minibatch):
            value = self.net.value(obs[idx])
            adv = (ret[idx] - value).detach()
            adv = (adv - adv.mean()) / (adv.std() + 1e-6)
            dist = torch.distributions.Categorical(logits=self.net.policy(obs[idx]))
            ratio = (dist.log_prob(act[idx]) - old[idx]).exp()
            loss = -torch.min(ratio * adv, ratio.clamp(0.8, 1.2) * adv).mean()
            loss = loss + F.mse_loss(value, ret[idx]) - 0.01 * dist.entropy().mean()
            self.optim.zero_grad()
            loss.backward()
            self.optim.step()
        return obs, ret

    def policy_phase(self, cycle):
        for it in range(self.args.policy_iters):
            t0 = time.time()
            parts = self.collect()
            self.memory.append(self.policy_update(parts))
            food = np.mean([p["rew"].mean() for p in parts])
            log.info("cycle %d iteration %d food %.3f in %.2fs, %d rollouts in memory", cycle, it, food,
                     time.time() - t0, len(self.memory))
            time.sleep(self.args.pace)

    def aux_phase(self, cycle):
        """Distil values into the policy trunk over everything the cycle has seen, then let it go."""
        t0 = time.time()
        with torch.no_grad():
            old = [torch.cat([self.net.policy(o) for o in obs.split(512)]) for obs, _ in self.memory]
        done = 0
        for _ in range(self.args.aux_epochs):
            for k in torch.randperm(len(self.memory)).tolist():
                obs, ret = self.memory[k]
                for idx in torch.randperm(len(obs)).split(256):
                    logits, aux = self.net.both(obs[idx])
                    loss = F.mse_loss(aux, ret[idx]) + F.mse_loss(self.net.value(obs[idx]), ret[idx])
                    loss = loss + F.kl_div(F.log_softmax(logits, -1), F.log_softmax(old[k][idx], -1),
                                           log_target=True, reduction="batchmean")
                    self.aux_optim.zero_grad()
                    loss.backward()
                    self.aux_optim.step()
                    done += 1
        self.memory.clear()
        log.info("cycle %d auxiliary phase: %d updates in %.1fs", cycle, done, time.time() - t0)

    def run(self):
        for p in self.actors:
            p.start()
        for cycle in range(self.args.cycles):
            self.policy_phase(cycle)
            self.aux_phase(cycle)
            check = mp.Process(target=evaluate, args=(cycle, self.args, self.state()), name=f"evaluate-{cycle}")
            check.start()
            check.join()
        for w in self.weights:
            w.put(None)
        for p in self.actors:
            p.join()
