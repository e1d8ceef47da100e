class LengthSchedule:
    """Sequence length warm-up: doubles every `every` steps until the maximum."""

    def __init__(self, start, maximum, every):
        self.start, self.maximum, self.every = start, maximum, every

    def __call__(self, step):
        return min(self.start * 2 ** (step // self.every), self.maximum)
