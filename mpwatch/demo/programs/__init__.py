"""One torch program for each failure."""
