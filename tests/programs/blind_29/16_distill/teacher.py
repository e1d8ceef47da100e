"""The two networks, and the teacher workers: they label their part of the corpus once and are done."""
import logging

import torch
from torch import nn


class Teacher(nn.Module):
    def __init__(self, dim, classes, width=768):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(dim, width), nn.GELU(), nn.Linear(width, width), nn.GELU(),
                                 nn.Linear(width, classes))

    @torch.inference_mode()
    def forward(self, x):
        return self.net(x)


def label_corpus(index, args, corpus, outbox, credits):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(message)s")
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    teacher = Teacher(corpus.shape[1], args.classes).eval()
    mine = torch.arange(index, len(corpus), args.teachers)
    for chunk in mine.split(args.label_batch):
        credits.acquire()
        inputs = corpus[chunk]
        views = [teacher(inputs + 0.05 * torch.randn_like(inputs)) for _ in range(args.teacher_views)]
        outbox.put((chunk.numpy(), torch.stack(views).mean(0).half().numpy()))
    outbox.put((index, None))
    logging.info("labelled %d samples, done", len(mine))


class Student(nn.Sequential):
    def __init__(self, dim, classes, width=192):
        super().__init__(nn.Linear(dim, width), nn.GELU(), nn.Linear(width, classes))
