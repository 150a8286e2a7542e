"""One module per question the benchmark answers."""
