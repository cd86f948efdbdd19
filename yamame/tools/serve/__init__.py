"""`yamame serve`: a trained policy as an HTTP and WebSocket service, with a memory for each session."""
