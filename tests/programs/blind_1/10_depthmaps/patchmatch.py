"""ctypes front end of the patch-match kernel (reads a raw cost volume)."""
import ctypes
import time

import torch

PLANES = 24


class CostVolume:
    def __init__(self, h, w):
        self.h, self.w = h, w
        self.data = torch.rand(PLANES, h, w)
        self.ptr = ctypes.cast(self.data.data_ptr(), ctypes.POINTER(ctypes.c_float))

    def cost(self, plane, y, x):
        return self.ptr[(plane * self.h + y) * self.w + x]


def best_plane(vol, y, x, prior):
    lo, hi = max(0, prior - 2), prior + 3
    return min(range(lo, min(hi, PLANES) if prior < 1000 else hi), key=lambda p: vol.cost(p, y, x))


def compute_depthmap(shot):
    torch.set_num_threads(1)
    torch.manual_seed(shot["id"])
    vol = CostVolume(48, 64)
    # priors come from the sparse points; a shot without points has a prior at infinity
    prior = 12 if shot["n_points"] else 10 ** 9
    planes = []
    for y in range(0, 48, 8):
        time.sleep(0.06)
        for x in range(0, 64, 8):
            planes.append(best_plane(vol, y, x, prior))
    return shot["id"], sum(planes) / len(planes)
