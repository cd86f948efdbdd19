"""One figure a file: `draw(paths, options)` returns it, `Options` has its flags, the first line says what it shows."""
