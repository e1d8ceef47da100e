"""The head: starts an agent on each node, and knows what they have sent."""
