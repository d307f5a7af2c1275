"""One job of a Hydra sweep: its runs join the study's plan, and are trained in the same folders as any others."""

from __future__ import annotations

import sys

from omegaconf import DictConfig
from rich.console import Console

from pipeline import verbs
from pipeline.config import ConfigError, checked


def job(composed: DictConfig) -> None:
    """Add the job's runs to the plan of its study and train them; what another job trained is not trained again."""
    try:
        question = checked(composed)
        study = verbs.study_of(question)
        before = study.read_plan() if study.plan_file.exists() else []
        runs = verbs.write_plan(question, study)
        known = {run.spec.hash for run in runs}
        study.write_plan([*(run for run in before if run.spec.hash not in known), *runs])
    except ConfigError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
    code = verbs.launch(question, study, Console())
    if code:
        sys.exit(code)
