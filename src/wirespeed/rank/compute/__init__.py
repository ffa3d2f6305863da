"""What the devices of a world compute and remember: how fast, and whether right."""
