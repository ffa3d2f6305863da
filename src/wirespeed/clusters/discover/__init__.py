"""A cluster file from a live cluster."""
