"""Reads, calls and exceptions that cannot disturb the program."""
