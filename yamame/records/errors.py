"""The one exception for mistakes that a user can mend."""


class UserError(Exception):
    """Something the user gave us is wrong: the message is one line that says what, and what to do about it.

    The command line prints the message and exits with code 2.
    """
