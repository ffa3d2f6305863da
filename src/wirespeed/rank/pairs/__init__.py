"""Pairs of nodes measured for real: each rank does its part of a round and tells all the others."""
