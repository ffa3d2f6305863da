"""Carry out a training plan on real ranks: prove, time in interleaved rounds, look closer, tell."""
