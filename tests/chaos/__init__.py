"""A campaign that kills and damages a small study at random, and expects the bytes of an undisturbed one."""
