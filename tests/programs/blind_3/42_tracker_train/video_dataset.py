import json
import torch
from torch.utils.data import Dataset

class TrackingDataset(Dataset):
    def __init__(self, n):
        self.n, self.index = n, None
    def __len__(self): return self.n
    def _open(self):
        rows = [json.dumps({"seq": i, "boxes": [[i % 7, j, i + j, j + 3] for j in range(12)]}) for i in range(30000)]
        self.index = {json.loads(r)["seq"]: json.loads(r)["boxes"] for r in rows}
    def __getitem__(self, i):
        if self.index is None:
            self._open()
        box = torch.tensor(self.index[i * 13][i % 12], dtype=torch.float32)
        return torch.randn(256), box
