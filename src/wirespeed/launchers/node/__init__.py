"""What runs on a node where somebody else's launcher starts processes, but no ranks."""
