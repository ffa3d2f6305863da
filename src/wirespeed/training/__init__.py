"""Training steps: models, gradient synchronisation, and what a step is made of (torch, in ranks)."""
