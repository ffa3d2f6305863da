"""The stored runs: their folder, their published shape, and what is imported from other tools."""
