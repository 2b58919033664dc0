"""The interval of a ratio of medians."""

from __future__ import annotations

import random

import pytest
from musacoder_verifier.ratio import RatioInterval, product, ratio_of_medians, relative_spread


def test_it_covers_the_true_ratio_about_as_often_as_it_says() -> None:
    dice = random.Random(7)
    covered = 0
    for _ in range(400):
        eager = [2.0 * dice.lognormvariate(0.0, 0.2) for _ in range(21)]
        candidate = [dice.lognormvariate(0.0, 0.2) for _ in range(21)]
        interval = ratio_of_medians(eager, candidate)
        covered += interval.low <= 2.0 <= interval.high
    assert 0.91 <= covered / 400 <= 0.99


def test_more_samples_narrow_it() -> None:
    dice = random.Random(1)
    samples = [[dice.lognormvariate(0.0, 0.3) for _ in range(200)] for _ in range(2)]
    few = ratio_of_medians(samples[0][:9], samples[1][:9])
    assert ratio_of_medians(*samples).width < few.width / 2


def test_constant_samples_have_an_exact_ratio() -> None:
    assert ratio_of_medians([6.0] * 5, [3.0] * 5) == RatioInterval(2.0, 2.0, 2.0)


@pytest.mark.parametrize("bad", [[1.0] * 4, [1.0, 1.0, 1.0, 1.0, 0.0]])
def test_too_few_or_impossible_samples_are_refused(bad: list[float]) -> None:
    with pytest.raises(ValueError):
        ratio_of_medians(bad, [1.0] * 5)


def test_a_product_is_wider_than_its_parts() -> None:
    first, second = RatioInterval(2.0, 1.8, 2.2), RatioInterval(0.5, 0.45, 0.55)
    both = product(first, second)
    assert both.ratio == 1.0
    assert both.low < 0.9 and both.high > 1.1


def test_spread_is_the_interquartile_range_over_the_median() -> None:
    assert relative_spread([1.0, 2.0, 3.0, 4.0, 5.0]) == pytest.approx(2.0 / 3.0)
