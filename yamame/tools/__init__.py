"""Tools that read run directories and call the public API."""
