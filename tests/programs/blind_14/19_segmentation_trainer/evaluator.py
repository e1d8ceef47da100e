"""Evaluator in the manner of the COCO one: collect on every rank, summarize on the main rank."""
from collections import OrderedDict

import torch
import torch.distributed as dist


class SegmentationEvaluator:
    def __init__(self, classes, rank, world_size):
        self.classes = classes
        self.rank = rank
        self.world_size = world_size
        self.reset()

    def reset(self):
        self.confusion = torch.zeros(self.classes, self.classes, dtype=torch.long)

    def process(self, pred, target):
        index = target.flatten() * self.classes + pred.flatten()
        self.confusion += torch.bincount(index, minlength=self.classes ** 2).view(self.classes, self.classes)

    def evaluate(self):
        dist.reduce(self.confusion, dst=0)
        if self.rank != 0:
            return OrderedDict()
        hit = self.confusion.diag().float()
        union = self.confusion.sum(0) + self.confusion.sum(1) - self.confusion.diag()
        iou = hit / union.clamp(min=1)
        result = OrderedDict(mIoU=iou.mean().item(), pACC=(hit.sum() / self.confusion.sum()).item())
        for c in range(self.classes):
            result[f"IoU-{c}"] = iou[c].item()
        return result
