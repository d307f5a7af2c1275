"""The recommended run as the configuration of other trainers: a function for each format of `cptlaw export`."""
