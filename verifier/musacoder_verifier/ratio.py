"""Confidence intervals of a ratio of medians, without a distribution."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist, median

_Z95 = NormalDist().inv_cdf(0.975)
MINIMUM_SAMPLES = 5


@dataclass(frozen=True, slots=True)
class RatioInterval:
    ratio: float
    low: float
    high: float

    @property
    def width(self) -> float:
        """Half the width of the interval, relative to the ratio."""
        return (self.high - self.low) / (2.0 * self.ratio)


def ratio_of_medians(numerator: Sequence[float], denominator: Sequence[float]) -> RatioInterval:
    """median(numerator) / median(denominator) with its 95 % interval.

    The interval is the one of Price and Bonett, "Distribution-free confidence intervals for
    difference and ratio of medians", J. Stat. Comput. Simul. 72 (2002): exp(ln ratio +- z * sqrt(
    var ln median_1 + var ln median_2)), each variance from two order statistics. All samples must
    be positive, at least five a side; ValueError otherwise.
    """
    if min(len(numerator), len(denominator)) < MINIMUM_SAMPLES:
        raise ValueError("an interval of a ratio of medians needs five samples a side")
    if min(numerator) <= 0.0 or min(denominator) <= 0.0:
        raise ValueError("a time that is not positive has no ratio")
    ratio = median(numerator) / median(denominator)
    reach = _Z95 * math.sqrt(_variance_of_log(numerator) + _variance_of_log(denominator))
    return RatioInterval(ratio, ratio * math.exp(-reach), ratio * math.exp(reach))


def bootstrapped(
    numerator: Sequence[float], denominator: Sequence[float], resamples: int = 999
) -> RatioInterval:
    """median(numerator) / median(denominator) of samples that were taken in pairs, one after the
    other, with the 95 % percentile interval of a moving-block bootstrap.

    Pairs are drawn together, so that what slows both sides down cancels, and in blocks of about the
    cube root of their number, so that what lasts for several samples does not make the interval too
    narrow (Kuensch, "The jackknife and the bootstrap for general stationary observations", Ann.
    Statist. 17, 1989). The draws are the same for the same number of samples. Up to nine pairs, few
    distinct medians come out; the wider one of it and `ratio_of_medians` counts there. ValueError
    as there.
    """
    plain = ratio_of_medians(numerator, denominator)
    count = len(numerator)
    if len(denominator) != count:
        raise ValueError("samples that were not taken in pairs have no paired interval")
    length = max(1, round(count ** (1 / 3)))
    chance = random.Random(count)
    starts = range(count - length + 1)
    blocks = -(-count // length)
    found = []
    for _ in range(resamples):
        places = [
            first + step for first in chance.choices(starts, k=blocks) for step in range(length)
        ][:count]
        above = median([numerator[place] for place in places])
        found.append(above / median([denominator[place] for place in places]))
    found.sort()
    low, high = _quantile(found, 0.025), _quantile(found, 0.975)
    if count < 10:
        low, high = min(low, plain.low), max(high, plain.high)
    return RatioInterval(plain.ratio, min(low, plain.ratio), max(high, plain.ratio))


def product(first: RatioInterval, second: RatioInterval) -> RatioInterval:
    """The interval of the product of two independent ratios, in log space."""
    ratio = first.ratio * second.ratio
    low = math.hypot(math.log(first.ratio / first.low), math.log(second.ratio / second.low))
    high = math.hypot(math.log(first.high / first.ratio), math.log(second.high / second.ratio))
    return RatioInterval(ratio, ratio * math.exp(-low), ratio * math.exp(high))


def relative_spread(samples: Sequence[float]) -> float:
    """Interquartile range over median."""
    ordered = sorted(samples)
    return (_quantile(ordered, 0.75) - _quantile(ordered, 0.25)) / median(ordered)


def _quantile(ordered: Sequence[float], share: float) -> float:
    place = share * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def _variance_of_log(samples: Sequence[float]) -> float:
    ordered = sorted(samples)
    count = len(ordered)
    rank = max(1, round((count + 1) / 2 - math.sqrt(count)))
    tail = 2.0 * sum(math.comb(count, i) for i in range(rank)) * 0.5**count
    z = NormalDist().inv_cdf(1.0 - tail / 2.0)
    spread = math.log(ordered[count - rank]) - math.log(ordered[rank - 1])
    return (spread / (2.0 * z)) ** 2
