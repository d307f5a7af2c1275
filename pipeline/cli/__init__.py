"""The command line: verbs, help, terminal tables, sweeps."""
