"""A single-level dense detector with a bbox head."""
from collections import OrderedDict

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F


class DenseBBoxHead(nn.Module):
    def __init__(self, channels, num_classes):
        super().__init__()
        self.num_classes = num_classes
        self.cls_conv = nn.Conv2d(channels, num_classes + 1, 1)
        self.reg_conv = nn.Conv2d(channels, 4, 1)

    def forward(self, feat):
        cls = self.cls_conv(feat).flatten(2).transpose(1, 2)
        reg = self.reg_conv(feat).flatten(2).transpose(1, 2)
        return cls, reg

    def get_targets(self, gt_bboxes, gt_labels, grid):
        labels = torch.full((len(gt_bboxes), grid * grid), self.num_classes)
        targets = torch.zeros(len(gt_bboxes), grid * grid, 4)
        for i, (boxes, cats) in enumerate(zip(gt_bboxes, gt_labels)):
            for box, cat in zip(boxes, cats):
                cx, cy = (box[:2] + box[2:]) / 2
                cell = int(cy * grid) * grid + int(cx * grid)
                labels[i, cell] = cat
                targets[i, cell] = box
        return labels, targets

    def loss(self, cls, reg, gt_bboxes, gt_labels):
        grid = int(cls.shape[1] ** 0.5)
        labels, targets = self.get_targets(gt_bboxes, gt_labels, grid)
        pos_inds = labels < self.num_classes
        losses = OrderedDict()
        losses["loss_cls"] = F.cross_entropy(cls.flatten(0, 1), labels.flatten())
        if pos_inds.any():
            losses["loss_bbox"] = F.smooth_l1_loss(reg[pos_inds], targets[pos_inds])
            losses["pos_acc"] = (cls[pos_inds].argmax(1) == labels[pos_inds]).float().mean() * 100
        return losses


class DenseDetector(nn.Module):
    def __init__(self, num_classes, width=32):
        super().__init__()
        self.backbone = nn.Sequential(
            nn.Conv2d(3, width, 3, 2, 1), nn.BatchNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, width * 2, 3, 2, 1), nn.BatchNorm2d(width * 2), nn.ReLU(),
            nn.Conv2d(width * 2, width * 2, 3, 1, 1), nn.ReLU(),
        )
        self.bbox_head = DenseBBoxHead(width * 2, num_classes)

    def forward(self, img, gt_bboxes, gt_labels):
        cls, reg = self.bbox_head(self.backbone(img))
        return self.bbox_head.loss(cls, reg, gt_bboxes, gt_labels)


def parse_losses(losses, group=None):
    log_vars = OrderedDict((name, value.mean()) for name, value in losses.items())
    loss = sum(value for name, value in log_vars.items() if "loss" in name)
    log_vars["loss"] = loss
    for name, value in log_vars.items():
        value = value.detach().clone()
        dist.all_reduce(value.div_(dist.get_world_size()), group=group)
        log_vars[name] = value.item()
    return loss, log_vars
