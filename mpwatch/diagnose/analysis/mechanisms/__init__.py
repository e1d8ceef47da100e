"""Why the wait of a cycle or of a dead end cannot come to its end: a cause and a fix for each."""
