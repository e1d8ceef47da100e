import torch
from torch import nn


class MyBatchNorm2d(nn.BatchNorm2d):
    """Batch norm written out by hand, so that the statistics can be changed easily."""

    def __init__(self, num_features, eps=1e-5, momentum=0.1, affine=True, track_running_stats=True):
        super().__init__(num_features, eps, momentum, affine, track_running_stats)

    def forward(self, input):
        self._check_input_dim(input)
        factor = 0.0
        if self.training and self.track_running_stats:
            self.num_batches_tracked += 1
            if self.momentum is None:
                factor = 1.0 / float(self.num_batches_tracked)
            else:
                factor = self.momentum
        if self.training:
            mean = input.mean([0, 2, 3])
            var = input.var([0, 2, 3], unbiased=False)
            n = input.numel() / input.size(1)
            self.running_mean = factor * mean + (1 - factor) * self.running_mean
            self.running_var = factor * var * n / (n - 1) + (1 - factor) * self.running_var
        else:
            mean = self.running_mean
            var = self.running_var
        out = (input - mean[None, :, None, None]) / torch.sqrt(var[None, :, None, None] + self.eps)
        if self.affine:
            out = out * self.weight[None, :, None, None] + self.bias[None, :, None, None]
        return out
