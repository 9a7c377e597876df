# SPDX-License-Identifier: MIT
from iolab.experiment import Comparison as Comparison
from iolab.experiment import compare as compare
from iolab.experiment.listing import kernels as kernels
from iolab.experiment.listing import load as load
from iolab.experiment.listing import pathologies as pathologies
from iolab.experiment.listing import read_trace as read_trace

__version__: str
