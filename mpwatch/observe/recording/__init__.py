"""Recordings: the file format, its codec, and the timeline that can be sought."""
