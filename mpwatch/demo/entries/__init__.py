"""The catalogue's rows, a module for each part of the catalogue of failures."""
