"""Traces that a job's own tools wrote: kineto's, the flight recorder's, Chakra's."""
