"""Sources of snapshots: a live job, a single reading, a recording."""
