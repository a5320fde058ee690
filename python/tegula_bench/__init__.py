"""Benchmarks of the package beside its peers: `python -m tegula.bench --help`.

Nothing here is imported by `import tegula`."""
