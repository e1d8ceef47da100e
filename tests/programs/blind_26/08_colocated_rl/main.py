"""Policy gradient with engines and trainer on the same machine: they take turns with its memory."""
import argparse
import logging
import os
import shutil
import signal
import sys
import tempfile
import time

import torch
import torch.multiprocessing as mp

from engine import engine_main
from policy import Policy

log = logging.getLogger("trainer")


def parse_args():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--engines", type=int, default=2)
    p.add_argument("--iterations", type=int, default=5000)
    p.add_argument("--rollouts", type=int, default=128, help="per engine and iteration")
    p.add_argument("--length", type=int, default=96)
    p.add_argument("--vocab", type=int, default=64)
    p.add_argument("--width", type=int, default=256)
    p.add_argument("--cache-mb", type=int, default=160)
    p.add_argument("--token-pause", type=float, default=0.07)
    p.add_argument("--epochs", type=int, default=4)
    p.add_argument("--mini-batch", type=int, default=32)
    p.add_argument("--lr", type=float, default=1e-3)
    return p.parse_args()


class Engines:
    def __init__(self, args):
        ctx = mp.get_context("spawn")
        self.conns, self.processes = [], []
        for index in range(args.engines):
            ours, theirs = ctx.Pipe()
            process = ctx.Process(target=engine_main, args=(index, theirs, args), name=f"engine-{index}", daemon=True)
            process.start()
            theirs.close()
            self.conns.append(ours)
            self.processes.append(process)

    def call(self, command, value=None):
        for conn in self.conns:
            conn.send((command, value))
        return [conn.recv() for conn in self.conns]

    def stop(self):
        for conn, process in zip(self.conns, self.processes):
            conn.send(("exit", None))
            process.join()


class Trainer:
    def __init__(self, args, folder):
        self.args = args
        torch.manual_seed(0)
        self.policy = Policy(args.vocab, args.width)
        self.optimizer = torch.optim.Adam(self.policy.parameters(), lr=args.lr)
        self.weights_path = os.path.join(folder, "policy.pt")
        self.states_path = os.path.join(folder, "optimizer.pt")

    def publish(self):
        torch.save(self.policy.state_dict(), self.weights_path)

    def offload(self):
        torch.save(self.optimizer.state_dict(), self.states_path)
        self.optimizer.state.clear()

    def onload(self):
        if os.path.exists(self.states_path):
            self.optimizer.load_state_dict(torch.load(self.states_path, weights_only=True))

    def update(self, tokens, scores):
        advantage = (scores - scores.mean()) / (scores.std() + 1e-6)
        with torch.no_grad():
            old = self.log_probs(tokens)
        for _ in range(self.args.epochs):
            for rows in torch.randperm(len(tokens)).split(self.args.mini_batch):
                ratio = (self.log_probs(tokens[rows]) - old[rows]).exp()
                gain = advantage[rows, None]
                loss = -torch.minimum(ratio * gain, ratio.clamp(0.8, 1.2) * gain).mean()
                self.optimizer.zero_grad()
                loss.backward()
                torch.nn.utils.clip_grad_norm_(self.policy.parameters(), 1.0)
                self.optimizer.step()
        return loss.item()

    def log_probs(self, tokens):
        logits = self.policy(tokens[:, :-1]).log_softmax(-1)
        return logits.gather(2, tokens[:, 1:, None]).squeeze(2)


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    torch.set_num_threads(1)
    folder = tempfile.mkdtemp(prefix="colocated-")
    try:
        engines = Engines(args)
        trainer = Trainer(args, folder)
        trainer.publish()
        for iteration in range(args.iterations):
            t0 = time.monotonic()
            engines.call("wake_up", trainer.weights_path)
            parts = engines.call("generate", args.rollouts)
            engines.call("sleep")
            t1 = time.monotonic()
            tokens = torch.cat([torch.from_numpy(t) for t, _ in parts])
            scores = torch.cat([torch.from_numpy(s) for _, s in parts])
            trainer.onload()
            loss = trainer.update(tokens, scores)
            trainer.offload()
            trainer.publish()
            log.info("iteration %d: reward %.3f, loss %.4f, rollout %.1f s, update %.1f s", iteration, scores.mean(), loss,
                     t1 - t0, time.monotonic() - t1)
        engines.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
