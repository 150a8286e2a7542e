"""One module per system that is measured."""
