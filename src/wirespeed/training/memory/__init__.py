"""Memory of one training step: measured by kind, predicted by formula, and the batch that fits."""
