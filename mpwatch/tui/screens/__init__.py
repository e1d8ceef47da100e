"""The screens of the dashboard, one per module."""
