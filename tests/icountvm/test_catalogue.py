# SPDX-License-Identifier: MIT
from __future__ import annotations

import re

import pytest

from icountvm.catalogue import CATALOGUE


@pytest.mark.parametrize(
    ("name", "package"),
    [
        ("5.10", "linux-image-5.10.0-32-amd64"),
        ("6.1", "linux-image-6.1.0-50-amd64"),
        ("6.8", "linux-image-unsigned-6.8.0-31-generic"),
        ("6.12", "linux-image-6.12.90+deb12.1-amd64"),
        ("6.12", "linux-image-6.12.107+deb13-amd64"),
        ("7.2", "linux-image-7.2.12+deb13-amd64"),
    ],
)
def test_the_catalogue_takes_stock_kernels_and_no_flavours(name: str, package: str) -> None:
    pattern = CATALOGUE[name].pattern
    assert re.fullmatch(pattern, package)
    for flavour in ("-cloud-amd64", "-rt-amd64", "-amd64-dbg", "-amd64-unsigned"):
        assert not re.fullmatch(pattern, package.replace("-amd64", flavour).replace("ic", "ic-64k"))
