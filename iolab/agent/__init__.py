# SPDX-License-Identifier: MIT
"""The part of iolab that runs on the measured machine.

Standard library only, Python 3.9; `iolab.targets.shipping` packs it as one zipapp, together with
`iolab.errors` and `iolab.process`.
"""
