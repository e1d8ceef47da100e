"""Voxel features of one scan."""
import numpy as np
import torch

GRID = (40, 128, 128)
LOW = np.array([-40.0, -40.0, -4.0], dtype=np.float32)
HIGH = np.array([40.0, 40.0, 2.0], dtype=np.float32)


def init_worker():
    torch.set_num_threads(1)


def voxelize(frame):
    """Counts and mean reflectance per voxel, pooled over height."""
    k, pts = frame
    unit = (pts[:, :3] - LOW) / (HIGH - LOW)
    keep = ((unit >= 0) & (unit < 1)).all(1)
    unit, refl = torch.from_numpy(unit[keep]), torch.from_numpy(pts[keep, 3])
    ix = (unit[:, 2] * GRID[0]).long()
    iy = (unit[:, 1] * GRID[1]).long()
    iz = (unit[:, 0] * GRID[2]).long()
    flat = (ix * GRID[1] + iy) * GRID[2] + iz
    n = GRID[0] * GRID[1] * GRID[2]
    count = torch.zeros(n).index_add_(0, flat, torch.ones_like(refl))
    total = torch.zeros(n).index_add_(0, flat, refl)
    mean = (total / count.clamp(min=1)).view(GRID)
    pooled = torch.nn.functional.avg_pool3d(mean[None, None], (10, 1, 1))[0, 0]
    occ = (count.view(GRID) > 0).float().view(4, 10, *GRID[1:]).mean(1)
    return k, torch.cat([pooled, occ]).numpy()
