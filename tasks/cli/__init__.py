"""The command line ``vancetope``. Importing it loads click and nothing of the application."""

from tasks.cli.root import main

__all__ = ["main"]
