#!/bin/bash
#SBATCH --partition=short
#SBATCH --account=lab
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=16
#SBATCH --mem=4G
#SBATCH --time=4:00:00
#SBATCH --signal=B:USR1@120
#SBATCH --requeue
#SBATCH --open-mode=append
module load cuda
export OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 TOKENIZERS_PARALLELISM=0
export SRUN_CPUS_PER_TASK="$SLURM_CPUS_PER_TASK"
export RAYON_NUM_THREADS="$SLURM_CPUS_PER_TASK" TOKENIZERS_PARALLELISM=1
trap 'scontrol requeue "$SLURM_JOB_ID"' USR1
/venv/bin/python -m training.corpora.shards "$SLURM_ARRAY_TASK_ID" 40 /data/general-1.unfinished '/data of law/law-2.unfinished' &
step=$!
while wait "$step"; code=$?; kill -0 "$step" 2> /dev/null; do :; done
exit "$code"
