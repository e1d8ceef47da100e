"""Processes that exit or are killed."""
