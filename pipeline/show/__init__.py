"""What a person sees of a study: terminal, report, wandb."""
