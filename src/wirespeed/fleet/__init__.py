"""What a fleet remembers and what it does about it: nodes and their past, verdicts acted on, regular checks."""
