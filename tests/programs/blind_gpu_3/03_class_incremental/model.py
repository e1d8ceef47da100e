"""Backbone with a classifier that grows with the number of known classes."""
import torch
import torch.nn as nn


class IncrementalNet(nn.Module):
    def __init__(self, feat_dim=256, num_classes=10):
        super().__init__()
        self.backbone = nn.Sequential(
            nn.Conv2d(3, 32, 3, 2, 1), nn.ReLU(), nn.Conv2d(32, 64, 3, 2, 1), nn.ReLU(),
            nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(64 * 16, feat_dim), nn.ReLU(),
        )
        self.feat_dim = feat_dim
        self.classifier = nn.Linear(feat_dim, num_classes)

    @property
    def num_classes(self):
        return self.classifier.out_features

    def expand_classifier(self, num_new):
        old = self.classifier
        new = nn.Linear(self.feat_dim, old.out_features + num_new).to(old.weight.device)
        with torch.no_grad():
            new.weight[: old.out_features].copy_(old.weight)
            new.bias[: old.out_features].copy_(old.bias)
        self.classifier = new

    def forward(self, x):
        return self.classifier(self.backbone(x))
