"""A copy of a study in wandb, made from the files of the study."""
