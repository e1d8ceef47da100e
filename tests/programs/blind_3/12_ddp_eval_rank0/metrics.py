class ConfusionTracker:
    """Keeps the confusion counts and the macro F1 that goes to the dashboard."""

    def __init__(self, classes):
        self.classes = classes
        self.counts = [[0] * classes for _ in range(classes)]

    def update(self, pred, target):
        for p, t in zip(pred, target):
            self.counts[t][p] += 1

    def macro_f1(self):
        total = 0.0
        for c in range(self.classes):
            tp = self.counts[c][c]
            fp = sum(self.counts[r][c] for r in range(self.classes)) - tp
            fn = sum(self.counts[c][k] for k in range(self.classes)) - tp
            total += 2 * tp / max(1, 2 * tp + fp + fn)
        return total / self.classes
