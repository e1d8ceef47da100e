import argparse
import logging
import os
import socket
import time
from multiprocessing import get_context

import torch

from actors import Actor, make_policy
from service import WeightClient, WeightService
from watch import ServiceWatch

log = logging.getLogger("learner")


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def reinforce_loss(policy, batch):
    loss = 0.0
    for _, obs, act, rew in batch:
        returns = torch.flip(torch.cumsum(torch.flip(torch.from_numpy(rew), [0]), 0), [0])
        advantage = (returns - returns.mean()) / (returns.std() + 1e-6)
        error = (policy(torch.from_numpy(obs)) - torch.from_numpy(act)).square().sum(-1)
        loss = loss + (advantage * error).mean()
    return loss / len(batch)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--actors", type=int, default=2)
    parser.add_argument("--batch-episodes", type=int, default=4)
    parser.add_argument("--updates", type=int, default=20000)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--watch-grace", type=float, default=4.0, help="seconds until the service must be up")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s")
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)

    address, authkey = ("127.0.0.1", free_port()), os.urandom(16)
    queue = get_context().Queue(maxsize=32)
    WeightService(address, authkey).start()
    time.sleep(0.5)
    policy = make_policy()
    optimizer = torch.optim.Adam(policy.parameters(), lr=args.lr)
    client = WeightClient(address, authkey)
    client.push({k: v.numpy().copy() for k, v in policy.state_dict().items()})
    for index in range(args.actors):
        Actor(index, address, authkey, queue, args.seed).start()
    ServiceWatch(address, args.watch_grace).start()

    for update in range(1, args.updates + 1):
        batch = [queue.get() for _ in range(args.batch_episodes)]
        optimizer.zero_grad()
        loss = reinforce_loss(policy, batch)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        optimizer.step()
        version = client.push({k: v.detach().numpy().copy() for k, v in policy.state_dict().items()})
        if update % 5 == 0:
            mean_return = sum(float(b[3].sum()) for b in batch) / len(batch)
            log.info("update %d, weights v%d, mean return %.2f, loss %.3f", update, version, mean_return, loss.item())


if __name__ == "__main__":
    main()
