"""Probes of a whole job: which processes belong to it, their roles, what is read when."""
