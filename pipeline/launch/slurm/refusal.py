"""A refusal of sbatch, with the key of launcher.slurm that it is about."""

from __future__ import annotations

from pipeline.question.schema.execution import SlurmConfig

LISTED_BY = {
    "qos": "sacctmgr show associations user=$USER format=account,partition,qos%50",
    "account": "sacctmgr show associations user=$USER format=account,partition",
    "partition": "sinfo",
}
"""Option that Slurm checks against names of the cluster -> command that lists the allowed names."""


def explain_refusal(message: str, slurm: SlurmConfig, further: str) -> str:
    """A message of sbatch, with the refused key, its value and where allowed ones are listed; else as it is.

    Args:
        further: key of launcher.slurm whose options follow the named ones in this job, extra or driver.

    >>> explain_refusal("sbatch: error: Invalid qos specification", SlurmConfig(qos="fast"), "extra")[40:100]
    ': launcher.slurm.qos=fast; sacctmgr show associations user=$'
    """
    for name, command in LISTED_BY.items():
        if f"invalid {name} " in message.lower():
            return f"{message}: {_given(name, slurm, further)}; {command} lists what is allowed"
    return message


def _given(name: str, slurm: SlurmConfig, further: str) -> str:
    """Where an option of a job comes from: of the same option sbatch takes the last."""
    for option in reversed(getattr(slurm, further)):
        if option.startswith(f"--{name}="):
            return f"launcher.slurm.{further}=['{option}']"
    value = getattr(slurm, name)
    return f"launcher.slurm.{name}=" + ("null" if value is None else value)
