"""How the hook is loaded, how it is unloaded, and what it does around a fork."""
