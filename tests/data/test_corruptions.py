"""The standard corruptions: an image's corruption is its own, the definitions are those that were published."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import ndimage

from antiphase.config import InputError
from antiphase.data.corruption_table import CORRUPTIONS, LEFT_OUT, SEVERITIES, applicable
from antiphase.data.corruptions import MAKE, corrupt, corrupted
from antiphase.data.imageset import ImageSet, Resized

UNORDERED = {  # by the published numbers the mean squared change does not rise with every severity
    "glass_blur": "more rounds with less blur",
    "elastic_transform": "smaller and smaller moves of the corners, rougher fields",
    "saturate": "first less saturation, then more",
}


def smooth_pictures(n: int, side: int = 32, channels: int = 3) -> ImageSet:
    """Coloured shapes with edges and soft parts: noise alone would be no picture."""
    draw = np.random.default_rng(3)
    fields = ndimage.gaussian_filter(draw.normal(size=(n, channels, side, side)), (0, 0, side / 12, side / 12))
    fields = (fields > 0) * 0.5 + 0.5 * (fields - fields.min()) / (fields.max() - fields.min())
    return ImageSet.of_tensors(torch.from_numpy(fields).float())


PICTURES = smooth_pictures(16)


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_an_image_is_corrupted_alike_in_any_order_batch_and_subset(name):
    images = PICTURES.take(np.arange(6))
    whole = corrupted(images, name, 3).all.pixels
    order = np.array([4, 1, 5])
    assert torch.equal(corrupted(images.take(order), name, 3).all.pixels, whole[order])
    one_by_one = torch.cat([batch.pixels for batch in corrupted(images, name, 3).batches(1)])
    assert torch.equal(one_by_one, whole)
    assert torch.equal(corrupted(images, name, 3).all.pixels, whole)


def test_what_is_drawn_changes_with_the_seed_the_severity_and_the_image():
    grey = ImageSet.of_tensors(torch.full((2, 3, 32, 32), 0.5))
    first, second = corrupted(grey, "gaussian_noise", 3).all.pixels - 0.5
    other = corrupted(grey, "gaussian_noise", 3, seed=1).all.pixels[0] - 0.5
    milder = corrupted(grey, "gaussian_noise", 1).all.pixels[0] - 0.5
    draws = torch.stack([first, second, other, milder]).flatten(1)
    assert torch.corrcoef(draws).fill_diagonal_(0).abs().max() < 0.1


@pytest.mark.parametrize("name", CORRUPTIONS)
@pytest.mark.parametrize("side", [8, 32, 64])
def test_shape_and_range_stay_and_something_changes(name, side):
    for channels in (1, 3):
        images = smooth_pictures(2, side, channels)
        if CORRUPTIONS[name].refuses(images.shape):
            with pytest.raises(InputError, match=f"{name} makes no sense for tensors"):
                corrupted(images, name, 1)
            continue
        for severity in SEVERITIES:
            pixels = corrupted(images, name, severity).all.pixels
            assert pixels.shape == (2, *images.shape)
            assert pixels.dtype == torch.float32
            assert pixels.min() >= 0
            assert pixels.max() <= 1
        assert not torch.equal(pixels, images.all.pixels)


@pytest.mark.parametrize("name", [name for name in CORRUPTIONS if name not in UNORDERED])
def test_a_higher_severity_changes_more(name):
    clean = PICTURES.all.pixels
    changes = [float(((corrupted(PICTURES, name, s).all.pixels - clean) ** 2).mean()) for s in SEVERITIES]
    assert changes == sorted(changes), changes
    assert changes[-1] > 1.5 * changes[0]


@pytest.mark.parametrize("name", ["gaussian_noise", "snow", "fog", "jpeg_compression"])
def test_images_of_224_pixels_have_numbers_of_their_own(name):
    large = smooth_pictures(1, 224)
    assert CORRUPTIONS[name].arguments(224, 5) != CORRUPTIONS[name].arguments(32, 5)
    assert CORRUPTIONS[name].arguments(100, 5) == CORRUPTIONS[name].arguments(64, 5)  # the nearest, by ratio
    pixels = corrupted(large, name, 5).all.pixels
    assert pixels.shape == (1, 3, 224, 224)
    assert 0 <= pixels.min() <= pixels.max() <= 1


def test_frost_and_spatter_are_left_out_by_name_and_all_others_are_there():
    assert set(LEFT_OUT) == {"frost", "spatter"}
    assert len(CORRUPTIONS) + len(LEFT_OUT) == 19  # fifteen, and four to tune on
    assert list(MAKE) == list(CORRUPTIONS)
    with pytest.raises(InputError, match="'frost' is left out here: it needs photographs of frost"):
        corrupted(PICTURES, "frost", 1)
    with pytest.raises(InputError, match="there is no corruption 'motion_blurr': did you mean 'motion_blur'"):
        corrupted(PICTURES, "motion_blurr", 1)
    with pytest.raises(InputError, match="severity 6 does not exist"):
        corrupted(PICTURES, "fog", 6)


def test_grey_images_of_8_pixels_go_without_three_corruptions_and_say_why():
    kept, refused = applicable(tuple(CORRUPTIONS), (1, 8, 8))
    assert set(refused) == {"motion_blur", "snow", "saturate"}
    assert len(kept) == 14


# ------------------------------------------------------------------------------------------------- definitions


def of(name: str, pixels: np.ndarray, severity: int = 5) -> np.ndarray:
    return corrupt(pixels, name, severity, np.random.default_rng(0))


GREY = np.full((32, 32, 3), 0.5)


def test_gaussian_noise_has_the_published_deviation():
    deviations = [of("gaussian_noise", GREY, s).std() for s in SEVERITIES]
    assert deviations == pytest.approx([0.04, 0.06, 0.08, 0.09, 0.10], rel=0.04)


def test_shot_noise_has_the_variance_of_counted_photons():
    draws = np.stack([corrupt(GREY, "shot_noise", 5, np.random.default_rng(i)) for i in range(20)])
    assert draws.mean() == pytest.approx(0.5, abs=2e-3)
    assert draws.var() == pytest.approx(0.5 / 50, rel=0.05)  # lambda = 0.5 * 50, divided by 50 twice
    assert np.allclose(draws * 50, np.round(draws * 50))


def test_impulse_noise_turns_a_share_of_all_values_black_or_white():
    draws = np.stack([corrupt(GREY, "impulse_noise", 5, np.random.default_rng(i)) for i in range(20)])
    assert np.mean(draws == 0) == pytest.approx(0.035, rel=0.1)
    assert np.mean(draws == 1) == pytest.approx(0.035, rel=0.1)
    assert np.mean(draws == 0.5) == pytest.approx(0.93, rel=0.01)


def test_speckle_noise_is_proportional_to_the_pixel():
    dark, light = (of("speckle_noise", np.full((64, 64, 3), level), 1).std() for level in (0.2, 0.4))
    assert light / dark == pytest.approx(2, rel=0.05)
    assert dark == pytest.approx(0.15 * 0.2, rel=0.05)  # the number for 64 pixels


def test_contrast_shrinks_the_distance_from_the_mean_of_each_channel():
    pixels = PICTURES.all.pixels[0].permute(1, 2, 0).double().numpy()
    result = of("contrast", pixels)
    assert result.mean(axis=(0, 1)) == pytest.approx(pixels.mean(axis=(0, 1)))
    assert result.std(axis=(0, 1)) == pytest.approx(0.15 * pixels.std(axis=(0, 1)))


def test_brightness_and_saturation_are_those_of_the_standard_library():
    import colorsys

    pixels = PICTURES.all.pixels[0].permute(1, 2, 0).double().numpy()[::7, ::7]
    pixels = np.concatenate([pixels.reshape(-1, 3), [[0, 0, 0], [0.4, 0.4, 0.4], [1, 1, 1]]])

    def through_hsv(change):
        return np.array([colorsys.hsv_to_rgb(*change(*colorsys.rgb_to_hsv(*rgb))) for rgb in pixels])

    bright = MAKE["brightness"](pixels[None], None, 0.3)[0]
    assert bright == pytest.approx(through_hsv(lambda h, s, v: (h, s, min(v + 0.3, 1))))
    vivid = MAKE["saturate"](pixels[None], None, 2, 0.1)[0]
    assert vivid == pytest.approx(through_hsv(lambda h, s, v: (h, min(2 * s + 0.1, 1), v)))


@pytest.mark.parametrize(
    "name", ["gaussian_blur", "defocus_blur", "glass_blur", "motion_blur", "zoom_blur", "pixelate"]
)
def test_blurs_leave_an_even_image_as_it_is(name):
    assert of(name, GREY) == pytest.approx(GREY, abs=1e-6)


def test_motion_blur_is_a_one_sided_bell_along_a_line():
    point = np.zeros((41, 41, 1))
    point[20, 20] = 1
    streak = MAKE["motion_blur"](point, np.random.default_rng(0), 6, 2.0)[..., 0]
    assert streak.sum() == pytest.approx(1)
    assert streak.max() == streak[20, 20]
    weights = np.exp(-(np.arange(13) ** 2) / 8)
    assert np.sort(streak[streak > 0]) == pytest.approx(np.sort(weights / weights.sum()))
    assert not streak[:, 21:].any()  # from the right, at most 45 degrees off: all of it lies on one side


def test_defocus_blur_of_a_point_is_a_disk():
    point = np.zeros((33, 33, 1))
    point[16, 16] = 1
    disk = MAKE["defocus_blur"](point, None, 3, 0.1)[..., 0]
    assert disk.sum() == pytest.approx(1)
    assert (disk > 1e-6).sum() == 29  # points of the grid within 3 of its centre
    assert disk[16, 16] == pytest.approx(1 / 29)


def test_glass_blur_takes_every_pixel_from_its_neighbourhood():
    place = np.stack(np.mgrid[:32, :32], axis=-1) / 31.0
    moved = MAKE["glass_blur"](place, np.random.default_rng(0), 1e-3, 2, 1)
    shift = np.round((moved - place) * 31)
    assert np.abs(shift).max() >= 1
    assert not shift[:2].any()  # the edge stays
    assert set(np.unique(MAKE["glass_blur"](place, np.random.default_rng(0), 1e-3, 1, 1)[5:-5] * 31 % 1).round(6)) <= {
        0,
        1,
    }


def test_fog_is_a_cloud_that_covers_the_range_and_dims_the_image():
    black_and_white = np.zeros((32, 32, 3))
    black_and_white[:, 16:] = 1
    foggy = of("fog", black_and_white)
    assert foggy[:, :16].max() <= 1.5 / 2.5 + 1e-9  # thickness over brightest + thickness
    assert foggy[:, 16:].min() >= 1 / 2.5 - 1e-9
    fog = foggy * 2.5 - black_and_white
    assert fog.min() == pytest.approx(0, abs=1e-9)
    assert fog.max() == pytest.approx(1.5)


def test_a_pixelated_image_of_half_the_side_has_blocks_of_means():
    pixels = PICTURES.all.pixels[0].permute(1, 2, 0).double().numpy()
    blocks = MAKE["pixelate"](pixels, None, 0.5)
    means = pixels.reshape(16, 2, 16, 2, 3).mean(axis=(1, 3))
    assert blocks == pytest.approx(means.repeat(2, axis=0).repeat(2, axis=1), abs=1e-6)


def test_corruptions_are_read_from_images_of_another_size_too():
    larger = replace(PICTURES, source=Resized(PICTURES.source, 40))
    assert corrupted(larger, "fog", 1).all.pixels.shape == (16, 3, 40, 40)
