"""Benchmarks of Tegula beside its peers: `python -m tegula.bench --help`.

No module here imports tegula when it is loaded, so the programs of the repository's bench/ use them without a build.
`import tegula` imports nothing from here."""
