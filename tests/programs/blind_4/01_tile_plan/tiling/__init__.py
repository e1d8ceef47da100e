"""Tile pyramid helpers."""
