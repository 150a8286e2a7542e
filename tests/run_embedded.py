"""Run a development stack on the folder given as argument, as `vancetope dev` would. For tests that kill it."""

import os
import sys
from pathlib import Path

from tasks.dev.stack import DevOptions, run_dev

options = DevOptions(
    folder=Path(sys.argv[1]),
    local_model="no",
    application="embedded_app",
    concurrency=2,
    pool=sys.argv[2] if len(sys.argv) > 2 else "threads",
    grace=5.0,
    environment={"PYTHONPATH": os.path.dirname(__file__)},
)
sys.exit(run_dev(options))
