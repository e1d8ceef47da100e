"""What keeps memory and descriptors, as the source shows: containers, references, tasks left."""
