"""What rules about the ranks of a distributed job need."""
