"""Frozen values that all other packages share. Nothing here uses files, clocks or the network."""
