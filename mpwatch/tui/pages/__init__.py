"""What screens say: pure functions from a snapshot to rows and lines; no widget is imported."""
