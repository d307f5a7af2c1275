"""From fits to an answer, one file a goal: recommendation, confirmation, report."""
