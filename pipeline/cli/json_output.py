"""What `--json` prints of a study: the artifacts that the verb wrote, under keys that docs/guide.md lists."""

import dataclasses
from fractions import Fraction

import pandas as pd

from pipeline.cli.fit_table import JSON, fit_keys
from pipeline.goals.planning import planned_or_estimated
from pipeline.goals.weights.artifacts import WeightsConfirmation, WeightsRecommendation
from pipeline.launch.launcher import LAUNCHERS
from pipeline.plan.cost import costs
from pipeline.plan.duration import speed_of, wall_seconds
from pipeline.question.schema import Question
from pipeline.show.conclusion import conclusion_of
from pipeline.show.tables import mean_error
from pipeline.study.artifacts import Confirmation, Recommendation
from pipeline.study.context import Context, context_of
from pipeline.study.fits import read_back_test, read_fits
from pipeline.study.folder import PlannedRun
from pipeline.study.status import MOST, RunStatus, statuses


def json_of(verb: str, question: Question) -> JSON:
    """The content for `cptlaw VERB --json`. Raises StudyError: a file that the verb writes is missing or damaged."""
    context, many = context_of(question), question.goal_kind.many_domains
    if verb in ("recommend", "confirm"):
        kinds = (WeightsRecommendation, WeightsConfirmation) if many else (Recommendation, Confirmation)
        artifact = kinds[verb == "confirm"]
        # Read, so that a damaged file is an error here too.
        content = {"schema": artifact.SCHEMA, **dataclasses.asdict(artifact.read(context.study))}
        if many:
            return content
        # The outcome of a confirmation judges its seeds alone; this is what terminal, report and exports say.
        known = conclusion_of(context)
        said = {"conclusion": known.headline, "known": known.is_known, "confirmed": known.verdict}
        return content | said | {"domain_ratio_by_runs": known.domain_ratio}
    content = {"status": _status, "plan": _plan, "fit": _fit}[verb](context)
    return {"schema": 1, "study": str(context.study.folder), **content}


def _run(run: PlannedRun) -> JSON:
    keys = {"run": run.name, "hash": run.spec.hash, "role": run.role, "model": run.model, "steps": run.spec.steps}
    return {
        **keys,
        "tokens": run.spec.tokens,
        "mixture": {name: float(Fraction(r)) for name, r in run.spec.mixture.items()},
    }


def _status(context: Context) -> JSON:
    rows, jobs = described_runs(context)
    runs = [
        {**_run(row.run), "state": row.state, "step": row.step, "tokens_per_second": row.speed, "losses": row.losses}
        | {"detail": row.detail}
        for row in rows
    ]
    return {"runs": runs, "jobs": jobs}


def described_runs(context: Context, *, briefly: bool = False) -> tuple[list[RunStatus], list[str]]:
    """The planned runs with what launchers know of them, and lines about other jobs; of all launchers, since the
    study's may have been another when jobs were queued. StudyError: nothing is planned.

    `briefly`: of more than `MOST` runs those that are done are without speed and losses.
    """
    study, lines = context.study, list[str]()
    plan = study.read_plan() if study.plan_file.exists() else []
    rows = statuses(study, plan, context.question.launcher.stale_after, brief=briefly and len(plan) > MOST)
    for launcher in LAUNCHERS.values():
        rows, more = launcher.status(context, rows)
        lines += more
    if not rows and not lines:
        study.read_plan()
    return rows, lines


def _plan(context: Context) -> JSON:
    question = context.question
    planned = planned_or_estimated(context)
    context, runs = planned.context, planned.runs
    seconds = wall_seconds(context, runs)
    of_groups = [dataclasses.asdict(group) for group in costs(runs, speed_of(context, runs), question)]
    described_runs = [{**_run(run), "state": context.study.state(run)} for run in runs]
    return {"written": not planned.missing, "seconds": seconds, "costs": of_groups, "runs": described_runs}


def _fit(context: Context) -> JSON:
    if context.question.goal_kind.many_domains:
        return {"fits": {}, "held_out": []}
    fits, tested = read_fits(context.study, context.question), read_back_test(context.study)
    of_corpora = {corpus: {law: fit_keys(fitted) for law, fitted in of.items()} for corpus, of in fits.items()}
    return {"fits": of_corpora, "held_out": held_out_errors(tested)}


def held_out_errors(tested: pd.DataFrame) -> list[JSON]:
    """The errors of each corpus, law and split, as tables have them."""
    keys = ["corpus", "law", "split"]
    return [
        dict(zip(keys, names))
        | {"mean_error": mean_error(own), "max_error": float(own["relative_error"].abs().max()), "points": len(own)}
        for names, own in tested.groupby(keys, sort=False)
    ]
