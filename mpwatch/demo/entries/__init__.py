"""The scenarios as data, one module for each part of the catalogue of failures."""
