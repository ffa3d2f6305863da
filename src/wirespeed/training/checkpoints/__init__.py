"""Checkpoints of training: what is in one, and how it comes to the disk and back."""
