"""The dashboard: the only package that imports textual or rich."""
