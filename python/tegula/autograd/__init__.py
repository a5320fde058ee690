"""Ops of the library's table as functions of PyTorch with gradients; nothing is imported here."""
