"""Devices: one process, or several by DDP, FSDP2 or ZeRO."""
