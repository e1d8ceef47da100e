"""Synthetic road-sign crops with box annotations."""
import torch
from torch.utils.data import Dataset


class RoadSignDataset(Dataset):
    CLASSES = ("speed", "stop", "yield", "crossing")

    def __init__(self, num_images=4000, size=48, filter_empty_gt=False, seed=11):
        self.size = size
        gen = torch.Generator().manual_seed(seed)
        counts = torch.multinomial(torch.tensor([0.12, 0.46, 0.28, 0.14]), num_images, True, generator=gen)
        self.records = [(i, int(c)) for i, c in enumerate(counts)]
        if filter_empty_gt:
            self.records = [r for r in self.records if r[1] > 0]

    def __len__(self):
        return len(self.records)

    def __getitem__(self, idx):
        image_id, num_boxes = self.records[idx]
        gen = torch.Generator().manual_seed(image_id)
        img = torch.rand(3, self.size, self.size, generator=gen)
        xy = torch.rand(num_boxes, 2, generator=gen) * 0.6
        wh = torch.rand(num_boxes, 2, generator=gen) * 0.3 + 0.1
        labels = torch.randint(0, len(self.CLASSES), (num_boxes,), generator=gen)
        return {"img": img, "gt_bboxes": torch.cat([xy, xy + wh], 1), "gt_labels": labels}


def collate(batch):
    return {
        "img": torch.stack([b["img"] for b in batch]),
        "gt_bboxes": [b["gt_bboxes"] for b in batch],
        "gt_labels": [b["gt_labels"] for b in batch],
    }
