"""Deadlocks and hangs."""
