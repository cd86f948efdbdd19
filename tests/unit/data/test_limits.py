from dataclasses import dataclass

import pytest

from yamame.errors import ConfigFieldError, UserError, check_range


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Some of each kind."""

    count: int = 3
    rate: float = 0.5
    widths: tuple[int, ...] = ()
    perhaps: float | None = None

    def __post_init__(self) -> None:
        check_range(self, "count", "widths", "perhaps", ge=1, le=9)
        check_range(self, "rate", gt=0, lt=1)


@pytest.mark.parametrize("settings", [{}, {"count": 1}, {"count": 9}, {"widths": (1, 9)}, {"perhaps": 2.5}])
def test_inside(settings):
    Settings(**settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"count": 0}, "count must be at least 1 and at most 9, not 0"),
        ({"count": 10}, "count must be at least 1 and at most 9, not 10"),
        ({"widths": (3, 0, 12)}, "widths must be at least 1 and at most 9, not 0"),
        ({"perhaps": float("nan")}, "perhaps must be a finite number, not nan"),
        ({"count": "3"}, "count must be a number, got '3'"),
        ({"widths": (3, "4")}, "widths must be a number, got (3, '4')"),
        ({"rate": 0.0}, "rate must be above 0 and below 1, not 0.0"),
        ({"rate": 1.0}, "rate must be above 0 and below 1, not 1.0"),
        ({"rate": float("inf")}, "rate must be a finite number, not inf"),
    ],
)
def test_outside(settings, message):
    with pytest.raises(ConfigFieldError) as error:
        Settings(**settings)
    assert str(error.value) == message
    assert isinstance(error.value, UserError)
    assert (error.value.config_class, error.value.field) == (Settings, next(iter(settings)))
    assert f"{error.value.field} {error.value.problem}" == message
