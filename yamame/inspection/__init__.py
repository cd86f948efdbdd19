"""What an agent saw, did, expected and remembered in one trial, step by step."""
