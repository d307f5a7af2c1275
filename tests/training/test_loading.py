"""What a process that trains has loaded before its first run."""

import subprocess
import sys


def test_models_are_loaded_without_scipy_and_scipy_is_there_afterwards():
    script = (
        "import gc, sys, pipeline.launch.work; from training.loading import load_transformers; load_transformers();"
        "import training.loop, training.engines; assert gc.isenabled();"
        "assert not {'scipy', 'pandas', 'fitting'} & {*sys.modules};"
        "from scipy.optimize import linear_sum_assignment; load_transformers()"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
