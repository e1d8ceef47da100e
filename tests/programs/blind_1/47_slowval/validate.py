import time

import torch


@torch.no_grad()
def sliding_window_validation(net, volumes=6, window=16, size=96):
    """Whole volumes, window by window, on one rank: the metric needs complete volumes."""
    net.eval()
    dice = []
    for v in range(volumes):
        vol = torch.rand(1, 1, size, size)
        acc = 0.0
        for y in range(0, size, window):
            for x in range(0, size, window):
                acc += net(vol[..., y:y + window, x:x + window]).mean().item()
                time.sleep(0.06)
        dice.append(acc)
    net.train()
    return sum(dice) / len(dice)
