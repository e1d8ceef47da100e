"""Rollout process: takes new weights, samples completions, scores them."""
import logging

import torch

from policy import Policy

log = logging.getLogger("sampler")


def score(completions):
    even = (completions % 2 == 0).float().mean(1)
    spread = (completions[:, 1:] != completions[:, :-1]).float().mean(1)
    return even * spread


def sampler_process(args, weights_q, rollouts_q):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s [sampler] %(message)s")
    torch.set_num_threads(1)
    torch.manual_seed(args.seed + 1)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    policy = Policy(args.vocab, args.dim, args.layers).to(device).eval()
    version = 0
    while True:
        weights = weights_q.get()
        if weights is None:
            return
        with torch.no_grad():
            for p, w in zip(policy.parameters(), weights):
                p.copy_(w)
        version += 1
        prompts = torch.randint(0, args.vocab, (args.rollouts, args.prompt_len), device=device)
        tokens = policy.sample(prompts, args.new_tokens)
        rewards = score(tokens[:, args.prompt_len:])
        rollouts_q.put((tokens.cpu(), rewards.cpu()))
        if version % args.log_every == 0:
            log.info("weights version %d, mean reward %.4f", version, rewards.mean().item())
