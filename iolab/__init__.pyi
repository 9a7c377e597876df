# SPDX-License-Identifier: MIT
from iolab.experiment import Comparison as Comparison
from iolab.experiment import antagonist as antagonist
from iolab.experiment import compare as compare
from iolab.experiment import question as question
from iolab.experiment.claims import decide as decide
from iolab.experiment.claims import judge as judge
from iolab.experiment.claims import why as why
from iolab.experiment.listing import kernels as kernels
from iolab.experiment.listing import load as load
from iolab.experiment.listing import pathologies as pathologies
from iolab.experiment.listing import profile as profile
from iolab.experiment.listing import read_trace as read_trace
from iolab.experiment.sweep import sweep as sweep
from iolab.figures.interactive import timeline as timeline
from iolab.pathology import register as register
from iolab.pathology.base import Published as Published

__all__: list[str]
__version__: str
