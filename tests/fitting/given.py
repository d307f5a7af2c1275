"""Fits whose parameters are given, for questions whose answer is known."""

import numpy as np

import fitting


def given(
    law: str, params: dict[str, float], ranges=None, draws: int = 0, wobble: float = 0.01, **fields
) -> fitting.Fit:
    """A fit of that law, with bootstrap draws that scatter by `wobble` around the parameters."""
    rng = np.random.default_rng(0)
    values = np.array(list(params.values()))
    scatter = values * np.exp(wobble * rng.standard_normal((draws, len(values))))
    if "lambda" in params:
        scatter[:, list(params).index("lambda")] = np.clip(scatter[:, list(params).index("lambda")], 0, 0.9995)
    return fitting.Fit(
        law=law,
        params=dict(params),
        metrics={"log_rmse": 0.001},
        objective=0.0,
        n_points=100,
        n_runs=10,
        ranges=ranges or {},
        columns=[name for name in fitting.LAWS[law].columns if name not in fields.get("unknown", ())],
        draws=scatter if draws else np.zeros((0, 0)),
        run_errors=np.array([-0.001, 0.001]),
        point_errors=np.array([-0.001, 0.001]),
        **fields,
    )
