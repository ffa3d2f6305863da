"""How ranks are started, watched and stopped."""

ENGINES = ("local", "ssh", "mpi", "deepspeed", "slurm", "ray", "metaflow", "k8s")
"""Each is a module of `engines/` that holds one `ENGINE`."""
