"""The paper that the items of this folder belong to."""

from everlearn.experiments.papers.registry import Paper

PAPER = Paper(
    "online-vb",
    "Balancing plasticity and stability of on-line learning based on hierarchical Bayesian adaptation of forgetting "
    "factors",
    "Junichiro Hirayama, Junichiro Yoshimoto and Shin Ishii, Neurocomputing 2006",
    order=("forms", "fig1", "fig2", "fig3", "fig4", "fig5", "fig6", "fig7"),
)
