"""Ways to get the hook into a running process, and out again."""
