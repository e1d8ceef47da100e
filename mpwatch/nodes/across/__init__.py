"""Findings of a job as a whole, from the summaries of its nodes.

What one node can tell alone is a finding of that node. Here are the failures that only show when
nodes are compared: a rank that is elsewhere while those of other nodes wait for it, different
collectives, a node that does not answer, nodes that are set up differently, a rank that is slower.
"""
