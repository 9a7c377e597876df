# SPDX-License-Identifier: MIT
"""First process of a guest that only hands over its kernel's symbols and types."""

import os

# It lies beside this file in the guest: iolab/targets/guest_init.py.
import guest_init  # type: ignore[import-not-found]

_FILES = {"kallsyms": "/proc/kallsyms", "btf": "/sys/kernel/btf/vmlinux"}


def main() -> None:
    """Mount, read, hand over, power off."""
    guest_init.mount_all()
    os.makedirs(guest_init._RESULTS)  # noqa: PTH103 - pathlib loads slowly
    for name, path in _FILES.items():
        try:
            with open(path, "rb") as source:  # noqa: PTH123
                data = source.read()
        except OSError:
            data = b""
        with open(f"{guest_init._RESULTS}/{name}", "wb") as copy:  # noqa: PTH123
            copy.write(data)
    try:
        guest_init.hand_over(guest_init.shared_memory(), {})
    finally:
        guest_init._libc.reboot(guest_init._RB_POWER_OFF)


if __name__ == "__main__":
    main()
