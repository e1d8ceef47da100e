import argparse
import logging
import time

import torch
import torch.multiprocessing as mp

from offload import CPUOffloadOptimizer
from policy import Policy
from sampler import sampler_process

log = logging.getLogger("trainer")


def policy_loss(policy, tokens, rewards, prompt_len):
    logits = policy(tokens[:, :-1])[:, prompt_len - 1:]
    targets = tokens[:, prompt_len:]
    logp = torch.log_softmax(logits.float(), dim=-1).gather(-1, targets.unsqueeze(-1)).squeeze(-1)
    advantage = (rewards - rewards.mean()) / (rewards.std() + 1e-6)
    return -(advantage.unsqueeze(1) * logp).mean()


class Trainer:
    def __init__(self, args, device, weights_q, rollouts_q):
        self.args, self.device = args, device
        self.weights_q, self.rollouts_q = weights_q, rollouts_q
        torch.manual_seed(args.seed)
        self.policy = Policy(args.vocab, args.dim, args.layers).to(device)
        adam = torch.optim.AdamW(self.policy.parameters(), lr=args.lr)
        self.optimizer = CPUOffloadOptimizer(adam, device, pin_memory=not args.no_pin)
        # weights are handed over in host buffers that both processes map
        self.handover = [torch.empty(p.shape).share_memory_() for p in self.policy.parameters()]

    @torch.no_grad()
    def publish(self):
        for buffer, p in zip(self.handover, self.policy.parameters()):
            buffer.copy_(p)
        self.weights_q.put(self.handover)

    def run(self):
        log.info("%.1f M parameters on %s", sum(p.numel() for p in self.policy.parameters()) / 1e6, self.device)
        started = time.time()
        for step in range(1, self.args.steps + 1):
            self.publish()
            tokens, rewards = self.rollouts_q.get()
            tokens, rewards = tokens.to(self.device), rewards.to(self.device)
            for part, reward in zip(tokens.split(self.args.micro_batch), rewards.split(self.args.micro_batch)):
                loss = policy_loss(self.policy, part, reward, self.args.prompt_len)
                loss.backward()
                self.optimizer.step()
                self.optimizer.zero_grad()
            if step % self.args.log_every == 0:
                log.info("step %d loss %.4f reward %.4f (%.2f s/step)", step, loss.item(), rewards.mean().item(),
                         (time.time() - started) / step)
        self.weights_q.put(None)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--vocab", type=int, default=4096)
    parser.add_argument("--dim", type=int, default=768)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--rollouts", type=int, default=32)
    parser.add_argument("--micro-batch", type=int, default=8)
    parser.add_argument("--prompt-len", type=int, default=8)
    parser.add_argument("--new-tokens", type=int, default=12)
    parser.add_argument("--lr", type=float, default=1e-4)
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--log-every", type=int, default=5)
    parser.add_argument("--no-pin", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s [trainer] %(message)s")
    torch.set_num_threads(1)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    ctx = mp.get_context("spawn")
    weights_q, rollouts_q = ctx.Queue(), ctx.Queue()
    sampler = ctx.Process(target=sampler_process, args=(args, weights_q, rollouts_q), name="sampler", daemon=True)
    sampler.start()
    Trainer(args, device, weights_q, rollouts_q).run()
    sampler.join()


if __name__ == "__main__":
    main()
