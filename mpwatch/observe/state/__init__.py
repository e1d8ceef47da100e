"""From inputs to snapshots: the fold and the state it keeps."""
