# SPDX-License-Identifier: MIT
"""Measure blocks of cells on the target machine; standard library only, Python 3.9.

`iolab.targets.shipped` packs this package as one zipapp, together with `iolab_base.errors` and
`iolab_base.process`.
"""
