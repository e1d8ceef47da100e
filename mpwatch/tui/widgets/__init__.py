"""Widgets; independent of the screens that use them."""
