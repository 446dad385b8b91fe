"""Warnings that point at the user's line, however deep in the package they arise."""

from __future__ import annotations

import os
import sys
import warnings

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


def warn_user(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn as if the warning arose in the line outside everlearn that led here.

    `warnings.warn` counts calls (`stacklevel`), and the count is wrong as soon as a function is added on the way; its
    `skip_file_prefixes` does this, from Python 3.12 on.

    Parameters
    ----------
    message : str
        What happened, and what to do.
    category : type of Warning
        The class of the warning.
    """
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)
