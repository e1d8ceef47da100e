"""Ways to start an agent on each node of a job.

A launcher only makes the command of a pipe: placement, authentication and fan-out belong to the
engine that it calls.
"""
