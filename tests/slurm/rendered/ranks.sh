#!/bin/bash
#SBATCH --partition=short
#SBATCH --account=lab
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=2
#SBATCH --cpus-per-task=8
#SBATCH --gpus-per-node=2
#SBATCH --time=4:00:00
#SBATCH --signal=B:USR1@120
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --container-image=lab.sqsh
module load cuda
export OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 TOKENIZERS_PARALLELISM=0
export SRUN_CPUS_PER_TASK="$SLURM_CPUS_PER_TASK"
export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export MASTER_PORT=$((20000 + SLURM_JOB_ID % 20000))
runs=$(awk -v task="${SLURM_ARRAY_TASK_ID:-0}" '$1 == task { print $2 }' /studies/law/jobs/0123abcd.tasks | paste -sd, -)
trap 'kill -USR1 "$step"' USR1
trap : TERM
# When a process exits, the others of its run have a minute, and those of other runs go on (0).
srun --kill-on-bad-exit=0 --wait=60 /venv/bin/python -m pipeline.launch.worker /studies/law --only "$runs" &
step=$!
while wait "$step"; code=$?; kill -0 "$step" 2> /dev/null; do :; done

# 75: state saved, run again. 70 or above 128: the process died; the worker allows launcher.retries deaths.
((code == 75)) && limit=1000 || limit=50
if ((code == 75 || code == 70 || code > 128)) && ((${SLURM_RESTART_COUNT:-0} < limit)) && [[ ! -e /studies/law/STOP ]] &&
  [[ $(squeue --noheader --jobs="$SLURM_JOB_ID" --format=%T) == RUNNING ]]; then
  scontrol requeue "$SLURM_JOB_ID"
fi
exit "$code"
