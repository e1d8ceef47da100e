import torch


class Scorer:
    """Scores unlabelled rows by their distance to the class centres."""

    def __init__(self, centres):
        self.centres = centres

    def score(self, rows):
        d = (rows[:, None, :] - self.centres[None]).pow(2).sum(-1)
        conf, label = d.neg().softmax(1).max(1)
        return conf, label


def label_shard(conn, centres, shard, rows, dim):
    g = torch.Generator().manual_seed(100 + shard)
    conf, label = Scorer(centres).score(torch.randn(rows, dim, generator=g))
    keep = conf > 0.5
    conn.send((shard, int(keep.sum()), label[keep][:5].tolist()))
    conn.close()
