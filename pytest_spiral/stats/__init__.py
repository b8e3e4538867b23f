"""Intervals, tests, power and agreement over independent units. Pure, standard library only.

Every function states its formula and source. Samples come as `Clusters` or `Tally`, which cannot be made of turns.
"""

from pytest_spiral.stats.agreement import agreement_interval, krippendorff_alpha, weighted_kappa
from pytest_spiral.stats.clusters import Clusters, ClusterUnit, Pairing, Tally, pair
from pytest_spiral.stats.power import hits_needed, least_passing_rate, minimum_detectable_difference, standard_error
from pytest_spiral.stats.rates import (
    Interval,
    binomial_tail,
    clopper_pearson,
    corrected_rate,
    independent_difference,
    mcnemar,
    wilson,
)
from pytest_spiral.stats.resampling import (
    adjusted_interval,
    bca,
    bounded_mean,
    expanded,
    percentile_interval,
    percentile_resamples,
    quantile,
    rao_wu_resamples,
    sign_flip,
)
from pytest_spiral.stats.variance import (
    Components,
    VarianceSummary,
    design_effect,
    variance_components,
    variance_summary,
)

__all__ = [
    "ClusterUnit",
    "Clusters",
    "Components",
    "Interval",
    "Pairing",
    "Tally",
    "VarianceSummary",
    "adjusted_interval",
    "agreement_interval",
    "bca",
    "binomial_tail",
    "bounded_mean",
    "clopper_pearson",
    "corrected_rate",
    "design_effect",
    "expanded",
    "hits_needed",
    "independent_difference",
    "krippendorff_alpha",
    "least_passing_rate",
    "mcnemar",
    "minimum_detectable_difference",
    "pair",
    "percentile_interval",
    "percentile_resamples",
    "quantile",
    "rao_wu_resamples",
    "sign_flip",
    "standard_error",
    "variance_components",
    "variance_summary",
    "weighted_kappa",
    "wilson",
]
