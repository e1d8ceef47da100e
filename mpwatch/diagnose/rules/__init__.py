"""One failure a module; each has an id from the catalogue and a function `check`."""
