"""Ranks in pods: the pods of an environment that is there, or of one that is made for a job alone."""
