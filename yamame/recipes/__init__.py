"""One file an experiment: `config(env)` returns a full config; the docstring says what it costs and what to expect."""
