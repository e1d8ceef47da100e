class AverageMeter:
    def __init__(self):
        self.reset()

    def reset(self):
        self.val = 0
        self.sum = 0
        self.count = 0

    def update(self, val, n=1):
        self.val = val
        self.sum += val * n
        self.count += n

    @property
    def avg(self):
        return float(self.sum / max(self.count, 1))


class MeterBoard:
    def __init__(self, *names):
        self.meters = {name: AverageMeter() for name in names}

    def update(self, **values):
        for name, value in values.items():
            self.meters[name].update(value)

    def reset(self):
        for meter in self.meters.values():
            meter.reset()

    def __str__(self):
        return " ".join(f"{k} {m.avg:.4f}" for k, m in self.meters.items())
