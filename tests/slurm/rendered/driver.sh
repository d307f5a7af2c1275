#!/bin/bash
#SBATCH --partition=short
#SBATCH --account=lab
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=1
#SBATCH --mem=4G
#SBATCH --time=4:00:00
#SBATCH --requeue
#SBATCH --open-mode=append
module load cuda
export OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 TOKENIZERS_PARALLELISM=0
export SRUN_CPUS_PER_TASK="$SLURM_CPUS_PER_TASK"
/venv/bin/python -m pipeline.cli.main continue /studies/law
