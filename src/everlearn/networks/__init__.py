"""Incremental moment matching for torch networks; needs the extra `torch`.

A network trained on one task after another forgets the first. Here each task leaves a Gaussian posterior over the
weights, its mean the trained weights and its precision their diagonal Fisher information, and these are merged: by
their means (mean-IMM), or by the mode of their product (mode-IMM). Transfer between tasks keeps the weights in one
valley of the loss, where merging is sound.

References
----------
Lee et al., "Overcoming catastrophic forgetting by incremental moment matching", NIPS 2017.
"""

from everlearn.networks.experiments import mnist_tasks, multilayer_perceptron, run_imm
from everlearn.networks.fisher import diagonal_fisher
from everlearn.networks.imm import mean_imm, mode_imm, with_state
from everlearn.networks.training import train
from everlearn.networks.transfer import drop_transfer, l2_penalty

__all__ = [
    "diagonal_fisher",
    "drop_transfer",
    "l2_penalty",
    "mean_imm",
    "mnist_tasks",
    "mode_imm",
    "multilayer_perceptron",
    "run_imm",
    "train",
    "with_state",
]
