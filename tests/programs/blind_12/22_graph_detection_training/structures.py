"""Per-image annotation objects that travel with the batch."""
import torch


class BoxAnnotation:
    """One annotated object with everything the losses may want to see."""

    def __init__(self, box, label, keypoints, attributes):
        self.box = box
        self.label = label
        self.keypoints = keypoints
        self.visibility = keypoints[:, 2] > 0
        self.attributes = attributes
        self.area = (box[2] - box[0]).clamp(min=0) * (box[3] - box[1]).clamp(min=0)
        self.iscrowd = torch.zeros((), dtype=torch.bool)


class Sample:
    def __init__(self, image, annotations, image_id):
        self.image = image
        self.annotations = annotations
        self.image_id = torch.tensor(image_id)
        self.size = torch.tensor(image.shape[-2:])


class Batch:
    def __init__(self, samples):
        self.images = torch.stack([s.image for s in samples])
        self.annotations = [s.annotations for s in samples]
        self.image_ids = [s.image_id for s in samples]
        self.sizes = [s.size for s in samples]

    def __len__(self):
        return len(self.images)
