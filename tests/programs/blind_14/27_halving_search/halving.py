"""Asynchronous successive halving, stopping variant."""


class SuccessiveHalving:
    def __init__(self, min_resource, reduction_factor, max_resource):
        self.eta = reduction_factor
        self.rungs = []
        r = min_resource
        while r < max_resource:
            self.rungs.append((r, []))
            r *= reduction_factor

    def should_prune(self, epoch, value):
        for resource, values in self.rungs:
            if epoch == resource:
                values.append(value)
                keep = max(1, len(values) // self.eta)
                return value < sorted(values, reverse=True)[keep - 1]
        return False
