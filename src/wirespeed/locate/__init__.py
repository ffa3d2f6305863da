"""Which node, link or rail is slow: pair schedules, the localiser, and the simulator that tests it.

The localiser (localise.py) sees only a `Fabric` (pair_figures.py), which is either real ranks or the
simulator, so the published precision is that of the code that runs on a cluster. No file here knows
torch.
"""
