"""The models that are trained: their sizes (without torch), their code, their data."""
