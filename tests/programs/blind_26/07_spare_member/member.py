"""A member of the job: waits for a seat in a generation, trains in it, hands it over."""
import datetime
import logging
import os
import sys
import time

import torch
import torch.distributed as dist
from torch import nn


class Member:
    def __init__(self, member_id, port, args):
        self.id = member_id
        self.args = args
        self.log = logging.getLogger(f"member-{member_id}")
        self.store = dist.TCPStore("127.0.0.1", port, is_master=False, timeout=datetime.timedelta(seconds=60))
        torch.manual_seed(1)
        self.model = nn.Sequential(nn.Linear(32, 128), nn.Tanh(), nn.Linear(128, 128), nn.Tanh(), nn.Linear(128, 1))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.02, momentum=0.9)
        self.step = 0

    @property
    def checkpoint(self):
        return os.path.join(self.args.folder, "latest.pt")

    def wait_for_seat(self, after):
        """Stand by until the controller gives this member a rank in a later generation."""
        began = told = time.monotonic()
        while True:
            generation = int(self.store.get("generation"))
            if generation > after:
                key = f"seat/{generation}/{self.id}"
                if self.store.check([key]):
                    return generation, int(self.store.get(key))
            if time.monotonic() - told > 10:
                told = time.monotonic()
                self.log.info("standing by for %.0f s (generation %d runs)", told - began, generation)
            time.sleep(0.5)

    def load(self):
        if os.path.exists(self.checkpoint):
            saved = torch.load(self.checkpoint, weights_only=True)
            self.model.load_state_dict(saved["model"])
            self.optimizer.load_state_dict(saved["optimizer"])
            self.step = saved["step"]

    def save(self):
        torch.save({"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict(), "step": self.step},
                   self.checkpoint + ".new")
        os.replace(self.checkpoint + ".new", self.checkpoint)

    def train(self, generation, rank):
        group_store = dist.PrefixStore(f"group/{generation}", self.store)
        dist.init_process_group("gloo", store=group_store, rank=rank, world_size=self.args.active)
        self.load()
        target = torch.randn(32, generator=torch.Generator().manual_seed(6)) / 4
        self.log.info("rank %d of generation %d, from step %d", rank, generation, self.step)
        while True:
            self.step += 1
            g = torch.Generator().manual_seed(self.step * 8 + rank)
            x = torch.randn(64, 32, generator=g)
            loss = nn.functional.mse_loss(self.model(x).squeeze(1), torch.sin(x @ target))
            self.optimizer.zero_grad()
            loss.backward()
            for p in self.model.parameters():
                dist.all_reduce(p.grad)
                p.grad /= self.args.active
            self.optimizer.step()
            time.sleep(self.args.pace)
            if self.step % 200 == 0 and rank == 0:
                self.log.info("step %d loss %.4f", self.step, loss.item())
            if self.step % 20 == 0 and self.handover(generation, rank):
                break
        if rank == 0:
            self.save()
        dist.barrier()
        dist.destroy_process_group()

    def handover(self, generation, rank):
        flag = torch.zeros(1)
        if rank == 0 and self.store.check([f"drain/{generation}"]):
            flag.fill_(1)
        dist.broadcast(flag, src=0)
        return bool(flag.item())


def member_main(member_id, port, args):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.set_num_threads(1)
    member = Member(member_id, port, args)
    generation = 0
    while True:
        generation, rank = member.wait_for_seat(generation)
        member.train(generation, rank)
        member.store.set(f"drained/{generation}/{member_id}", "1")
        if member.store.get(f"drain/{generation}").decode() == str(member_id):
            member.log.info("node goes to maintenance, bye")
            sys.exit(0)
