import dataclasses


@dataclasses.dataclass
class Config:
    num_classes: int = 4
    image_size: int = 64
    samples_per_gpu: int = 4
    workers_per_gpu: int = 2
    lr: float = 0.01
    total_epochs: int = 500
    checkpoint_interval: int = 1
    log_interval: int = 500
    wall_time: float = 93.0  # seconds, the batch system grants no more
    seed: int = 0
