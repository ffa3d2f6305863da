"""Probabilities of Student's t distribution, which `statistics.student_t` gives the quantiles of."""

import math
from statistics import NormalDist

from wirespeed.statistics import student_t

__all__ = ["quantile", "two_sided_p"]

_NORMAL = 1e6
"""From so many degrees of freedom on it is the normal distribution."""
_STEPS = 300
_TINY, _ENOUGH = 1e-300, 1e-14


def quantile(confidence: float, freedom: float) -> float:
    """The two-sided quantile; freedom may be infinite."""
    if freedom >= _NORMAL:
        return NormalDist().inv_cdf((1 + confidence) / 2)
    return student_t(confidence, freedom)


def two_sided_p(t: float, freedom: float) -> float:
    """P(|T| > |t|): 0.05 for 12.706 and 1 degree of freedom; freedom above 0, or infinite.

    It is the regularized incomplete beta function I_x(freedom/2, 1/2) at x = freedom/(freedom + t²)
    (M. Abramowitz and I. A. Stegun, Handbook of Mathematical Functions, 26.5.27 and 26.7.1).
    """
    if math.isinf(t):
        return 0.0
    if freedom >= _NORMAL:
        return math.erfc(abs(t) / math.sqrt(2))
    x = freedom / (freedom + t * t)
    a, b = freedom / 2, 0.5
    # The continued fraction converges quickly below the mean only; beyond it, by symmetry.
    if x < (a + 1) / (a + b + 2):
        return _front(a, b, x) * _fraction(a, b, x) / a
    return 1 - _front(a, b, x) * _fraction(b, a, 1 - x) / b


def _front(a: float, b: float, x: float) -> float:
    if x <= 0 or x >= 1:
        return 0.0
    log_beta = math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)
    return math.exp(a * math.log(x) + b * math.log1p(-x) - log_beta)


def _fraction(a: float, b: float, x: float) -> float:
    """The continued fraction of the incomplete beta function (26.5.8), by W. J. Lentz's method."""
    c, d = 1.0, 1 / _away(1 - (a + b) * x / (a + 1))
    value = d
    for m in range(1, _STEPS):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            d = 1 / _away(1 + term * d)
            c = _away(1 + term / c)
            value *= c * d
        if abs(c * d - 1) < _ENOUGH:
            break
    return value


def _away(value: float) -> float:
    """Not zero, by which would be divided."""
    return value if abs(value) > _TINY else _TINY
