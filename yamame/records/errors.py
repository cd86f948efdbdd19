"""The exceptions for mistakes that a user can mend."""

from typing import Any


class UserError(Exception):
    """Something the user gave us is wrong: the message is one line that says what, and what to do about it.

    The command line prints the message and exits with code 2.
    """


class FieldError(UserError):
    """A field of a config holds what it may not; the message begins with the field's name."""

    def __init__(self, config: Any, field: str, problem: str) -> None:
        super().__init__(f"{field} {problem}")
        self.config_class = type(config)
        self.field = field
        self.problem = problem
        """The rest of a sentence that begins with the name."""
