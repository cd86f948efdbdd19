"""Many runs in one folder: planned, made one after the other, gone on with, and told of in tables."""
