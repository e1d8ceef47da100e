import copy

import torch
import torch.nn.functional as F
from torch import nn


def backbone(dim=64):
    return nn.Sequential(
        nn.Conv2d(3, 12, 5, stride=4), nn.GELU(), nn.Conv2d(12, 24, 3, stride=2), nn.GELU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(24, dim), nn.GELU(), nn.Linear(dim, 128),
    )


class StudentTeacher:
    def __init__(self):
        self.student = backbone()
        self.teacher = copy.deepcopy(self.student).requires_grad_(False)

    def loss(self, crops):
        with torch.no_grad():
            target = F.softmax(self.teacher(crops["global"]).chunk(2)[0] / 0.04, dim=-1)
        pred = [self.student(crops["global"]).chunk(2)[1]] + list(self.student(crops["local"]).chunk(crops["views"]))
        return -sum((target * F.log_softmax(p / 0.1, dim=-1)).sum(-1).mean() for p in pred) / len(pred)

    @torch.no_grad()
    def update_teacher(self, momentum):
        for t, s in zip(self.teacher.parameters(), self.student.parameters()):
            t.lerp_(s, 1 - momentum)
