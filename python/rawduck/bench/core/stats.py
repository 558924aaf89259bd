"""The statistics of the reports. Runs are pairs: run n of one mode was made beside run n of the other."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

#: Below this a difference counts as shown, as in the paper whose experiments are repeated here.
SIGNIFICANT = 0.01


def median(values: Sequence[float]) -> float:
    return statistics.median(values)


def standard_error(values: Sequence[float]) -> float:
    """Of the mean; NaN for fewer than two values."""
    if len(values) < 2:
        return math.nan
    return statistics.stdev(values) / math.sqrt(len(values))


def geometric_mean(values: Sequence[float]) -> float:
    return math.exp(sum(math.log(value) for value in values) / len(values))


def paired_t_test(smaller: Sequence[float], larger: Sequence[float]) -> float | None:
    """The probability of such a difference, or a larger one, if `smaller` were not smaller on average.

    None where it cannot be said: fewer than two pairs, pairs that all differ by the same, or scipy missing.
    """
    differences = [a - b for a, b in zip(smaller, larger, strict=True)]
    if len(differences) < 2 or statistics.pstdev(differences) == 0:
        return None
    try:
        from scipy.stats import ttest_rel
    except ImportError:
        return None
    return float(ttest_rel(smaller, larger, alternative="less").pvalue)
