"""From inputs to snapshots: sources, fold, history, recordings."""
