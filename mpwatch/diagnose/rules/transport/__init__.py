"""Shared-memory transport of CPU tensors."""
