"""The agent on a node: finds its jobs, makes its rows, and serves the head."""
