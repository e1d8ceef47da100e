"""Probes of one process: procfs, descriptors, mappings, threads, stacks."""
