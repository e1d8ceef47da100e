"""Throughput."""
