"""Where runs are trained: worker processes, ranks, this machine or Slurm."""
