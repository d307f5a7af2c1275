"""python -m pipeline.launch.worker STUDY: `work.main`, and an answer to signals while it is imported."""

from training.stop import end_in_time, leave_on_signals


def main() -> None:
    """Entry point of the worker process."""
    leave_on_signals("stopped before the first run")
    end_in_time()
    # Late, because it takes most of a second, in which signals are answered.
    from pipeline.launch import work

    work.main()


if __name__ == "__main__":
    main()
