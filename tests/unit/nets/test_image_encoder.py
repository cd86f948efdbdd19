import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from yamame.config.serialization import from_json, to_json
from yamame.data.goals import INSTRUCTION_KEY
from yamame.nets.timestep.encoder import TimestepEncoderConfig
from yamame.nets.timestep.image import ImageEncoder, ImageEncoderConfig


def image_box(*shape: int) -> spaces.Box:
    return spaces.Box(0, 255, shape, np.uint8)


def built(leaf: spaces.Box, **changes: object) -> ImageEncoder:
    torch.manual_seed(0)
    return ImageEncoderConfig(**{"output_size": 6, "channels": (3, 4), **changes}).build(leaf, "leaky_relu").double()


def images(leaf: spaces.Box, count: int = 3) -> torch.Tensor:
    leaf.seed(0)
    return torch.from_numpy(np.stack([leaf.sample() for _ in range(count)]))


@pytest.mark.parametrize(("height", "width"), [(8, 8), (9, 17), (15, 8), (36, 36), (64, 64), (84, 84), (210, 160)])
@pytest.mark.parametrize("channels", [1, 3, 4])
def test_one_rule_serves_all_sizes_and_both_orders_of_axes(height: int, width: int, channels: int) -> None:
    """What comes last in one comes first in the other, and the network is the same."""
    last, first = image_box(height, width, channels), image_box(channels, height, width)
    assert ImageEncoderConfig().matches("seen", last) and ImageEncoderConfig().matches("seen", first)
    pixels = images(last)
    out, same = built(last)(pixels), built(first)(pixels.movedim(-1, 1))
    assert out.shape == (3, 6)
    torch.testing.assert_close(out, same, rtol=0, atol=1e-12)
    assert not torch.allclose(out[0], out[1])


def test_the_last_map_is_small_whatever_the_image() -> None:
    def size_of_map(*shape: int) -> tuple[int, int]:
        encoder = built(image_box(*shape))
        return len(encoder.stages), encoder.output.in_features

    assert size_of_map(8, 8, 3) == (1, 3 * 4 * 4)
    assert size_of_map(64, 64, 3) == (4, 4 * 4 * 4)
    assert size_of_map(210, 160, 3) == (5, 4 * 7 * 5)
    assert size_of_map(3, 2) == (1, 3 * 2 * 1), "an override reads so small an image, and halves it once"


FURTHER = [
    spaces.Box(0.0, 1.0, (64, 64, 3), np.float32),
    spaces.Box(0, 255, (64, 64, 3), np.float32),
    spaces.Box(-1.0, 1.0, (3, 64, 64), np.float64),
    spaces.Box(0, 255, (84, 84), np.uint8),
    spaces.Box(0.0, 1.0, (16, 16), np.float32),
    spaces.Box(0, 255, (4, 84, 84, 3), np.uint8),
    spaces.Box(0, 255, (4, 3, 8, 8), np.uint8),
    spaces.Box(0, 65535, (48, 64, 1), np.uint16),
    spaces.Box(0, 1, (20, 20, 26), np.bool_),
    spaces.Box(0, 255, (2, 4, 3, 32, 32), np.uint8),
    spaces.Box(0.0, 10.0, (40, 30, 4), np.float32),
]
NO_IMAGES = [
    spaces.Box(0, 255, (7, 7, 3), np.uint8),
    spaces.Box(0, 8, (8, 8), np.uint8),
    spaces.Box(0.0, 1.0, (10, 10, 4), np.float32),
    spaces.Box(-np.inf, np.inf, (64, 64, 3), np.float32),
    spaces.Box(0.0, 1.0, (500, 12), np.float32),
    spaces.Box(0.0, 1.0, (5000,), np.float32),
    spaces.MultiBinary([64, 64]),
    spaces.MultiDiscrete(np.full((9, 9, 3), 5)),
    spaces.Discrete(5),
]


@pytest.mark.parametrize("leaf", FURTHER, ids=str)
def test_further_images_are_encoded_unless_a_run_is_older_than_that(leaf: spaces.Box) -> None:
    config = TimestepEncoderConfig()
    assert config.resolve_encoders({"seen": leaf}) == {"seen": "image"}
    assert config.resolve_encoders({INSTRUCTION_KEY: leaf})[INSTRUCTION_KEY] == "vector"
    older_file = to_json(config)
    del older_file["image"]["plain"]
    older = from_json(TimestepEncoderConfig, older_file)
    assert older.resolve_encoders({"seen": leaf}) == {"seen": "vector"}
    pixels = images(leaf, 2)
    assert built(leaf)(pixels).shape == (2, 6)


@pytest.mark.parametrize("leaf", NO_IMAGES, ids=str)
def test_what_is_not_clearly_an_image_is_not_taken_for_one(leaf: spaces.Space) -> None:
    assert TimestepEncoderConfig().resolve_encoders({"seen": leaf})["seen"] != "image"


def test_images_of_bytes_are_those_of_earlier_versions() -> None:
    older = ImageEncoderConfig(plain=False)
    assert older.matches("seen", image_box(64, 64, 3)) and older.matches("seen", image_box(4, 8, 8))
    assert not older.matches("seen", image_box(4, 64, 64, 3))


@pytest.mark.parametrize(
    ("shape", "height_axis"),
    [
        *(((84, 84, 4), 0), ((3, 64, 64), 1), ((4, 64, 64, 3), 1), ((4, 3, 64, 64), 2), ((64, 64, 3, 4), 0)),
        *(((9, 9), 0), ((8, 8, 12), 0), ((119, 8, 8), 1), ((8, 9, 12), 1), ((2, 4, 3, 32, 32), 3)),
    ],
)
def test_pixels_are_a_square_or_the_two_longest_neighbors(shape: tuple[int, ...], height_axis: int) -> None:
    """Any other order of axes with the same pixels gives the same image to the network."""
    encoder = built(image_box(*shape))
    assert encoder.axes == (height_axis + 1, height_axis + 2)
    pixels = images(image_box(*shape))
    channels_first = pixels.movedim(encoder.axes, (-2, -1))
    expected = built(image_box(*channels_first[:, None].flatten(1, -3).shape[1:]))
    torch.testing.assert_close(encoder(pixels), expected(channels_first[:, None].flatten(1, -3)))


def test_what_may_be_meant_otherwise_is_said() -> None:
    leaves = {
        "normalized": spaces.Box(-np.inf, np.inf, (64, 64, 3), np.float32),
        "bits": spaces.MultiBinary([64, 64]),
        "rays": spaces.Box(0.0, 1.0, (5000,), np.float32),
        "table": spaces.Box(0.0, 1.0, (20, 30), np.float32),
        "pixels": image_box(64, 64, 3),
        "small": spaces.Box(-np.inf, np.inf, (8, 8), np.float32),
    }
    remarks = TimestepEncoderConfig().remarks(leaves)
    assert [remark.split("'")[1] for remark in remarks] == ["normalized", "bits", "rays", "table"]
    assert "(64 x 64 x 3) has infinite bounds" in remarks[0] and "12,288 numbers" in remarks[0]
    assert "is a MultiBinary, not a Box of bool" in remarks[1]
    assert "5,000 numbers" in remarks[2] and "table=vector" in remarks[3]
    settled = TimestepEncoderConfig(encoder_overrides=("table=vector", "rays=vector"))
    assert [remark.split("'")[1] for remark in settled.remarks(leaves)] == ["normalized", "bits"]


def test_pixels_lie_between_zero_and_one() -> None:
    """Bytes divided by 255 are what the network is given as floats."""
    of_bytes, of_floats = image_box(8, 8, 3), spaces.Box(0.0, 1.0, (8, 8, 3), np.float32)
    pixels = images(of_bytes)
    torch.testing.assert_close(built(of_bytes)(pixels), built(of_floats)(pixels.double() / 255), rtol=0, atol=1e-12)
    bits = spaces.Box(0, 1, (8, 8, 3), np.bool_)
    torch.testing.assert_close(built(bits)(pixels > 99), built(of_floats)((pixels > 99).double()), rtol=0, atol=1e-12)


def test_greyscale_without_a_channel() -> None:
    flat, deep = image_box(9, 9), image_box(9, 9, 1)
    pixels = images(flat)
    assert torch.equal(built(flat)(pixels), built(deep)(pixels[..., None]))


def test_every_parameter_learns_and_residual_blocks_are_what_they_say() -> None:
    leaf = image_box(16, 16, 3)
    encoder = built(leaf, num_residual_blocks=2)
    assert sum(isinstance(part, nn.Conv2d) for part in encoder.modules()) == 2 * (1 + 2 * 2)
    out = encoder(images(leaf))
    (out * torch.linspace(-1.0, 1.0, 6)).square().sum().backward()
    assert all(parameter.grad is not None and parameter.grad.any() for parameter in encoder.parameters())
    without = built(leaf, num_residual_blocks=0)
    assert sum(isinstance(part, nn.Conv2d) for part in without.modules()) == 2


def test_it_sees_the_whole_picture() -> None:
    """A change of any single pixel shows."""
    leaf = image_box(11, 8, 1)
    encoder = built(leaf)
    before = encoder(torch.zeros(1, 11, 8, 1, dtype=torch.uint8))
    for place in range(11 * 8):
        image = torch.zeros(11 * 8, dtype=torch.uint8)
        image[place] = 255
        assert not torch.allclose(encoder(image.view(1, 11, 8, 1)), before), place


@pytest.mark.parametrize(
    ("low", "high", "unit", "offset"), [(0, 1e4, 1.0, 0.0), (-1e6, 1e6, 1e-4, 0.0), (0, 9, 1e4, 1e6)]
)
def test_pixels_of_any_unit_are_the_same_image(low: float, high: float, unit: float, offset: float) -> None:
    """Bounds that are far from the pixels change nothing; the moments are those of real tokens."""
    pixels = torch.rand(5, 16, 16, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    mask = torch.tensor([True, True, True, True, False])
    out = []
    for leaf, image in (
        (spaces.Box(0, 1, (16, 16, 3), np.float64), pixels),
        (spaces.Box(low, high, (16, 16, 3), np.float64), pixels * unit + offset),
    ):
        encoder = built(leaf, plain=True)
        image = image.clone()
        encoder.update(torch.cat([image[:4], torch.full_like(image[4:], 1e9)]), mask)
        out.append(encoder(image[:4]))
    torch.testing.assert_close(out[0], out[1], rtol=0, atol=1e-6)
    assert not torch.allclose(out[0][0], out[0][1], atol=1e-3)


@pytest.mark.parametrize(("dark", "bright"), [(0, 2), (200, 201), (0, 255)])
def test_with_normalized_bytes_dim_images_are_as_good_as_bright_ones(dark: int, bright: int) -> None:
    leaf = image_box(16, 16, 3)
    shape = np.random.default_rng(0).integers(2, size=(20, 16, 16, 3))
    pixels = torch.from_numpy(np.where(shape, bright, dark).astype(np.uint8))
    encoder, expected = (
        built(leaf, normalize_bytes=True),
        built(spaces.Box(0.0, 1.0, (16, 16, 3), np.float32), plain=True),
    )
    expected.load_state_dict(encoder.state_dict())
    encoder.update(pixels, torch.ones(20, dtype=torch.bool))
    expected.update(torch.from_numpy(shape.astype(np.float32)), torch.ones(20, dtype=torch.bool))
    torch.testing.assert_close(encoder(pixels), expected(torch.from_numpy(shape.astype(np.float32))))


def test_bytes_and_images_of_older_files_have_no_moments() -> None:
    assert built(image_box(16, 16, 3), plain=True).normalizer is None
    assert built(spaces.Box(0, 1, (16, 16, 3)), plain=False).normalizer is None


@pytest.mark.parametrize(("high", "dtype"), [(3e38, np.float32), (65504, np.float16), (2**31 - 1, np.int32)])
def test_bounds_that_stand_for_infinity(high: float, dtype: type) -> None:
    leaf = spaces.Box(0, high, (16, 16, 3), dtype)
    assert not ImageEncoderConfig(plain=True).matches("seen", leaf)
    assert (
        ImageEncoderConfig(plain=True).missing_reason(leaf) == "has infinite bounds, where an image needs finite ones"
    )
