"""Fabrics as data: one YAML file a preset."""
