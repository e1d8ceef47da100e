"""Exceptions shared by the sweep tools."""


class SweepError(Exception):
    """Base class for everything that can go wrong with one candidate."""


class DivergenceError(SweepError):
    def __init__(self, candidate_id, epoch, loss):
        super().__init__(f"candidate {candidate_id} diverged at epoch {epoch} (loss {loss:.3g})")
        self.candidate_id = candidate_id
        self.epoch = epoch
        self.loss = loss
