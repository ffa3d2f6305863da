"""The cluster file: one YAML a cluster."""
