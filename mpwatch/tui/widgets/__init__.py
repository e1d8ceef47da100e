"""Widgets: they draw what they are handed and know no screen."""
