"""Inspections of the program's objects."""
