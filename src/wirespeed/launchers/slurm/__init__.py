"""What the Slurm engine is made of: words, a look at Slurm, and a driver around srun and sbatch."""
