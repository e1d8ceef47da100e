"""Model hand-over between the learner and the self-play actors through a directory."""
import glob
import os
import re

import torch


def save_model(model, directory, version):
    path = os.path.join(directory, f"model_{version}.pt")
    torch.save(model.state_dict(), path + ".part")
    os.replace(path + ".part", path)
    return path


def latest_checkpoint(directory):
    paths = sorted(glob.glob(os.path.join(directory, "model_*.pt")))
    return paths[-1] if paths else None


def version_of(path):
    return int(re.search(r"model_(\d+)\.pt$", path).group(1))
