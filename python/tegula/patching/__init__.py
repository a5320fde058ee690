"""Tegula's ops in the models of transformers; nothing is imported here."""
