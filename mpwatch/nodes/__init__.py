"""A job on several machines: the agent on each node, the head that reads all of them, launchers."""
