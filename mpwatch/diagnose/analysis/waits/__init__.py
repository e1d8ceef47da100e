"""The wait-for graph: edges, chains, and where a chain ends."""
