"""torch.distributed and its launchers."""
