"""The values everything else speaks in: frozen, without files, clocks or network."""
