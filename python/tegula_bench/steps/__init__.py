"""Training steps of a model by each provider: cases, the process of a provider, rounds, rows of results."""
