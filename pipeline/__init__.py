"""What happens when: the command line, the plan, launchers, collecting, recommending, confirming, report."""
