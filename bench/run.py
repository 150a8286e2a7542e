"""``python bench/run.py``, which is what ``make bench`` calls. See ``--help``."""

import sys
from pathlib import Path

# As a script, Python looks for modules in this folder; the benchmark is a package of the checkout around it.
sys.path[0] = str(Path(__file__).resolve().parents[1])

from bench.cli import main  # noqa: E402

if __name__ == "__main__":
    main()
