"""What travels between the agent on a node and the head: frames, messages, summaries."""
