import torch
from torch.utils.data import Dataset

from structures import Batch, BoxAnnotation, Sample


class PoseDetectionDataset(Dataset):
    def __init__(self, size=20000, objects=6, image=48):
        self.size, self.objects, self.image = size, objects, image

    def __len__(self):
        return self.size

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        image = torch.rand(3, self.image, self.image, generator=g)
        boxes = torch.rand(self.objects, 4, generator=g)
        points = torch.rand(self.objects, 17, 3, generator=g)
        labels = torch.randint(0, 10, (self.objects,), generator=g)
        attrs = torch.rand(self.objects, 6, generator=g)
        annotations = [BoxAnnotation(boxes[k].clone(), labels[k].clone(), points[k].clone(), attrs[k].clone())
                       for k in range(self.objects)]
        return Sample(image, annotations, i)


def collate(samples):
    return Batch(samples)
