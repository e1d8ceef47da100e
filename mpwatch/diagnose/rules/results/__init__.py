"""Silently wrong results."""
