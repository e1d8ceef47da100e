import torch
import torch.nn.functional as F
from torch import nn


class DepthNet(nn.Module):
    def __init__(self, w=8):
        super().__init__()
        self.enc1 = nn.Conv2d(3, w, 3, stride=2, padding=1)
        self.enc2 = nn.Conv2d(w, 2 * w, 3, stride=2, padding=1)
        self.dec = nn.ModuleList([nn.Conv2d(2 * w, 1, 3, padding=1) for _ in range(3)])

    def forward(self, x):
        h = F.relu(self.enc2(F.relu(self.enc1(x))))
        scales = []
        for k, head in enumerate(self.dec):
            h_k = F.interpolate(h, scale_factor=4 / 2 ** k, mode="bilinear", align_corners=False)
            scales.append(torch.sigmoid(head(h_k)))
        return scales


class PoseNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(6, 8, 5, stride=4, padding=2), nn.ReLU(),
                                 nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 6))

    def forward(self, a, b):
        return 0.01 * self.net(torch.cat([a, b], 1))


class SelfSupModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.depth_net, self.pose_net = DepthNet(), PoseNet()

    def photometric(self, target, context, inv_depth, pose):
        b, _, h, w = target.shape
        ys, xs = torch.meshgrid(torch.linspace(-1, 1, h), torch.linspace(-1, 1, w), indexing="ij")
        grid = torch.stack([xs, ys], -1).expand(b, h, w, 2)
        flow = pose[:, None, None, :2] * inv_depth.permute(0, 2, 3, 1)
        warped = F.grid_sample(context, grid + flow, align_corners=False, padding_mode="border")
        return (warped - target).abs().mean()

    def forward(self, batch):
        target, context = batch["rgb"], batch["rgb_context"]
        inv_depths = self.depth_net(target)
        pose = self.pose_net(target, context)
        loss = 0.0
        for inv_depth in inv_depths:
            full = F.interpolate(inv_depth, size=target.shape[-2:], mode="nearest")
            loss = loss + self.photometric(target, context, full, pose)
        return {"loss": loss, "inv_depths": inv_depths, "poses": pose}

    def training_step(self, batch):
        output = self(batch)
        metrics = {"photometric": output["loss"], "mean_inv_depth": output["inv_depths"][0].mean()}
        return {**output, "metrics": metrics}

    def training_epoch_end(self, outputs):
        loss = torch.stack([o["loss"] for o in outputs]).mean()
        depth = torch.stack([o["metrics"]["mean_inv_depth"] for o in outputs]).mean()
        return {"loss": loss.item(), "mean_inv_depth": depth.item()}
