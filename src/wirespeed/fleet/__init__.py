"""What a fleet remembers, and what is done about it: nodes and their past, regular checks."""
