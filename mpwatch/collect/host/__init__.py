"""Probes of the machine or container: limits, GPUs, permissions, orphans."""
