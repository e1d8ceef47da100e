from dataclasses import dataclass, field


@dataclass
class Config:
    board: int = 5
    max_moves: int = 40
    num_actors: int = 2
    hidden: int = 64
    batch_size: int = 64
    lr: float = 2e-3
    training_steps: int = 5000
    send_weights: int = 20
    window_size: int = 500
    window_step: int = 0
    stored_before_train: int = 750
    seed: int = 11
    discounts: tuple = field(default=(0.997,))
