import pytest

from yamame.errors import UserError
from yamame.tools.web.address import listen


@pytest.mark.parametrize("host", ["a..b", "x" * 64 + ".example"])
def test_a_name_that_no_host_can_have_is_refused_in_one_line(host: str) -> None:
    with pytest.raises(UserError, match="is no host"):
        listen(host, 0)
