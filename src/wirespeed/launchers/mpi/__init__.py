"""What the MPI engine is made of: one file a flavour of mpirun, and the guard around it."""
