"""Config dataclasses as JSON, as command-line flags, and the code that they name."""
