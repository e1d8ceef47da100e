import argparse
import logging
import os
import socket
import subprocess
import sys
import time

import torch
import torch.distributed as dist

from policy import PolicyNet, rollout
from publisher import WeightPublisher


def parse_args():
    ap = argparse.ArgumentParser(description="Synchronous actor/learner training with published weights")
    ap.add_argument("--world-size", type=int, default=3)
    ap.add_argument("--device", default="cuda:0")
    ap.add_argument("--backend", default="nccl")
    ap.add_argument("--iterations", type=int, default=5000)
    ap.add_argument("--batch", type=int, default=256)
    ap.add_argument("--env-time", type=float, default=0.08)
    ap.add_argument("--publish-every", type=int, default=12)
    ap.add_argument("--scale-at", type=int, default=30, help="iteration from which two replicas are served")
    return ap.parse_args()


def members_at(iteration, args):
    if iteration < args.scale_at:
        return list(range(args.world_size))
    return [0, 1]


def average_gradients(model):
    grads = torch.cat([p.grad.reshape(-1) for p in model.parameters()])
    dist.all_reduce(grads)
    grads /= dist.get_world_size()
    offset = 0
    for p in model.parameters():
        p.grad.copy_(grads[offset : offset + p.numel()].view_as(p))
        offset += p.numel()


def train(args, rank):
    log = logging.getLogger("train")
    device = torch.device(args.device)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    torch.manual_seed(0)
    model = PolicyNet().to(device)
    served = PolicyNet().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    publisher = WeightPublisher()
    generator = torch.Generator().manual_seed(100 + rank)
    for iteration in range(args.iterations):
        time.sleep(args.env_time)
        obs, actions, rewards = rollout(model, args.batch, device, generator)
        logits, values = model(obs)
        advantage = rewards - values
        logp = torch.distributions.Categorical(logits=logits).log_prob(actions)
        loss = -(logp * advantage.detach()).mean() + 0.5 * advantage.pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        average_gradients(model)
        optimizer.step()
        if iteration % 10 == 0:
            log.info("iteration %d reward %.3f", iteration, rewards.mean().item())
        if (iteration + 1) % args.publish_every == 0:
            if rank == publisher.source_rank:
                served.load_state_dict(model.state_dict())
            publisher.update(served, members_at(iteration, args))


def launch(args):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    procs = []
    for rank in range(args.world_size):
        env = dict(os.environ, RANK=str(rank), WORLD_SIZE=str(args.world_size))
        env.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), TORCH_DIST_INIT_BARRIER="1")
        env.update(NCCL_SOCKET_IFNAME="lo", NCCL_HOSTID=f"host{rank}", OMP_NUM_THREADS="1")
        procs.append(subprocess.Popen([sys.executable, __file__, *sys.argv[1:]], env=env))
    try:
        return max(p.wait() for p in procs)
    finally:
        for p in procs:
            if p.poll() is None:
                p.terminate()


def main():
    args = parse_args()
    if "RANK" not in os.environ:
        sys.exit(launch(args))
    rank = int(os.environ["RANK"])
    logging.basicConfig(
        level=logging.INFO, stream=sys.stdout, format=f"%(asctime)s %(name)s[{rank}] %(message)s"
    )
    dist.init_process_group(args.backend)
    train(args, rank)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
