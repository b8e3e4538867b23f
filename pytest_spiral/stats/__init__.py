"""Intervals, tests, power and agreement over independent units. Pure, standard library only.

Every function states its formula and source. Samples come as `Clusters` or `Tally`, which cannot be made of turns.
"""

from pytest_spiral.stats.agreement import agreement_interval, krippendorff_alpha, weighted_kappa
from pytest_spiral.stats.clusters import Clusters, ClusterUnit, Tally, pair
from pytest_spiral.stats.power import (
    Components,
    Purchase,
    clustered_se,
    design_effect,
    hits_needed,
    least_passing_rate,
    minimum_detectable_difference,
    purchases,
    standard_error,
    variance_components,
)
from pytest_spiral.stats.rates import (
    Interval,
    McNemar,
    binomial_tail,
    clopper_pearson,
    corrected_rate,
    independent_difference,
    mcnemar,
    paired_difference,
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

__all__ = [
    "ClusterUnit",
    "Clusters",
    "Components",
    "Interval",
    "McNemar",
    "Purchase",
    "Tally",
    "adjusted_interval",
    "agreement_interval",
    "bca",
    "binomial_tail",
    "bounded_mean",
    "clopper_pearson",
    "clustered_se",
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
    "paired_difference",
    "percentile_interval",
    "percentile_resamples",
    "purchases",
    "quantile",
    "rao_wu_resamples",
    "sign_flip",
    "standard_error",
    "variance_components",
    "weighted_kappa",
    "wilson",
]
