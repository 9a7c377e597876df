# SPDX-License-Identifier: MIT
"""A Debian server in a virtual machine: systemd, sshd, two disks, and a switch to pull.

The packages are installed once, scripts and all, into the cache. What a test does to the server is
gone with its virtual machine; a power cut (`Server.cut_power`) keeps what had reached its disks.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from icountvm.toolbox import ensure_toolbox
from iolab_base.cached import make_folder
from iolab_base.errors import IolabError
from iolab_base.files import cache_dir, digest_of
from iolab_base.process import Result, kill_group, run, start
from tests.support.bootstrap import bootstrap
from tests.support.processes import PATIENCE_S

SPARE_DISK = "/dev/vdb"
SERIAL = "IOLAB-SPARE"
_SUITE = "bookworm"
_PACKAGES = (
    *("dbus", "e2fsprogs", "fio", "initramfs-tools", "iproute2", "kmod", "linux-image-amd64"),
    *(
        "nfs-kernel-server",
        "openssh-client",
        "openssh-server",
        "python3",
        "sudo",
        "systemd-sysv",
        "trace-cmd",
    ),
    *("udev", "util-linux", "xfsprogs", "zstd"),
)
_LEFT_OUT = (
    *("usr/share/doc", "usr/share/locale", "usr/share/man"),
    *(
        f"lib/modules/*/kernel/drivers/{name}"
        for name in ("gpu", "infiniband", "media", "net/ethernet", "net/wireless", "staging", "usb")
    ),
    *("lib/modules/*/kernel/net/mac80211", "lib/modules/*/kernel/sound"),
)
_MASKED = (
    *("apt-daily.timer", "apt-daily-upgrade.timer", "dpkg-db-backup.timer", "e2scrub_all.timer"),
    *("e2scrub_reap.service", "fstrim.timer", "systemd-networkd-wait-online.service"),
    # A test that wants NFS starts it.
    *("nfs-blkmap.service", "nfs-client.target", "nfs-server.service", "rpcbind.service"),
    *("rpcbind.socket", "systemd-timesyncd.service"),
)
_BEFORE = """\
mkdir -p "$1/etc/initramfs-tools/conf.d" "$1/usr/share/initramfs-tools/modules.d"
printf 'MODULES=list\\n' > "$1/etc/initramfs-tools/conf.d/iolab"
printf 'ext4\\nvirtio_blk\\nvirtio_pci\\n' > "$1/usr/share/initramfs-tools/modules.d/iolab"
"""
_AFTER = f"""\
printf '[Match]\\nType=ether\\n[Network]\\nAddress=10.0.2.15/24\\n' \
    > "$1/etc/systemd/network/iolab.network"
chroot "$1" systemctl enable systemd-networkd
chroot "$1" systemctl mask {" ".join(_MASKED)}
chroot "$1" useradd -m -s /bin/sh trusted
printf 'trusted ALL=(ALL) NOPASSWD: ALL\\n' > "$1/etc/sudoers.d/trusted"
chroot "$1" useradd -m -s /bin/sh stranger
"""
_DISK = "2G"
_SPARE_BYTES = 1 << 30
_BOOT_S = 1200.0
_RECIPE = {
    "packages": _PACKAGES,
    "left_out": _LEFT_OUT,
    "before": _BEFORE,
    "after": _AFTER,
    "disk": _DISK,
    "version": 1,
}


def ensure_server() -> Path:
    """Return the folder with the server's ``disk``, ``vmlinuz``, ``initrd`` and keys.

    Errors: CannotRunError if Debian's packages cannot be fetched; CommandError.
    """

    def make(folder: Path) -> None:
        root = folder / "root"
        hooks = [f"--essential-hook={_BEFORE}", f"--customize-hook={_AFTER}"]
        options = ["--mode=root", "--variant=minbase", *hooks]
        bootstrap(_SUITE, _PACKAGES, root, title="the server", work=folder, options=options)
        run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / "key"], timeout_s=60)
        for home, owner in (("root", 0), ("home/trusted", 1000), ("home/stranger", 1001)):
            keys = root / home / ".ssh"
            keys.mkdir(mode=0o700, exist_ok=True)
            shutil.copyfile(folder / "key.pub", keys / "authorized_keys")
            for path in (keys, keys / "authorized_keys"):
                os.chown(path, owner, owner)
        for pattern in _LEFT_OUT:
            for unused in root.glob(pattern):
                shutil.rmtree(unused)
        shutil.copyfile(root / "etc/ssh/ssh_host_ed25519_key.pub", folder / "host.pub")
        for name in ("vmlinuz", "initrd.img"):
            (kernel,) = (root / "boot").glob(f"{name}-*")
            shutil.copyfile(kernel, folder / name)
        # mke2fs is the server's own: not every machine that runs tests has one.
        loader = root / "lib64/ld-linux-x86-64.so.2"
        libraries = f"{root}/lib/x86_64-linux-gnu:{root}/usr/lib/x86_64-linux-gnu"
        mke2fs = [str(loader), "--library-path", libraries, str(root / "sbin/mke2fs")]
        disk = folder / "disk"
        run(
            [*mke2fs, "-q", "-t", "ext4", "-L", "server", "-d", str(root), str(disk), _DISK],
            timeout_s=600,
        )
        shutil.rmtree(root)

    key = digest_of(json.loads(json.dumps(_RECIPE)))[:16]
    return make_folder(cache_dir() / "server" / key, make)


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


class Server:
    """The server, switched on; ``address`` and ``config`` are how ssh finds it."""

    def __init__(self, folder: Path) -> None:
        made = ensure_server()
        self._folder = folder
        self._port = _free_port()
        self._made = made
        self.address = f"ssh://root@127.0.0.1:{self._port}"
        (folder / "known").write_text(f"[127.0.0.1]:{self._port} {(made / 'host.pub').read_text()}")
        self.config = folder / "config"
        self.config.write_text(
            f"Host *\n  IdentityFile {made}/key\n  IdentitiesOnly yes\n"
            f"  UserKnownHostsFile {folder}/known\n  GlobalKnownHostsFile none\n"
            "  StrictHostKeyChecking yes\n"
        )
        self.console = folder / "console.txt"
        spare = folder / "spare"
        with spare.open("wb") as stream:
            stream.truncate(_SPARE_BYTES)
        # An emulated processor needs no protection from leaks, which costs a third of its time.
        words = ["root=LABEL=server", "rw", "console=ttyS0", "net.ifnames=0", "mitigations=off"]
        argv = ensure_toolbox().qemu_argv()
        argv += ["-nodefaults", "-no-user-config", "-display", "none", "-machine", "q35"]
        argv += ["-cpu", "max", "-accel", "tcg,thread=multi,tb-size=256", "-smp", "2"]
        argv += ["-m", "1024", "-serial", f"file:{self.console}"]
        argv += ["-kernel", str(made / "vmlinuz"), "-initrd", str(made / "initrd.img")]
        argv += ["-append", " ".join(words)]
        for name, file, serial in (("a", made / "disk", "SYSTEM"), ("b", spare, SERIAL)):
            # In a file of QEMU's own, that outlives a power cut and nothing else.
            argv += ["-drive", f"file={file},format=raw,if=none,id={name},snapshot=on"]
            argv += ["-device", f"virtio-blk-pci,drive={name},serial={serial}"]
        argv += ["-netdev", f"user,id=n,restrict=on,hostfwd=tcp:127.0.0.1:{self._port}-:22"]
        argv += ["-device", "virtio-net-pci,netdev=n,romfile="]
        argv += ["-qmp", f"unix:{folder}/qmp,server=on,wait=off"]
        self._argv_of_qemu = argv
        self._switch_on()
        try:
            self.wait()
        except BaseException:
            self.stop()
            raise

    def _switch_on(self) -> None:
        with (self._folder / "qemu.txt").open("wb") as said:
            self._qemu = start(
                self._argv_of_qemu, stdout=said, stderr=said, env={**os.environ, "TMPDIR": "/tmp"}
            )

    def stop(self) -> None:
        """Switch it off for good."""
        kill_group(self._qemu)

    def ssh(self, script: str, *, timeout_s: float = PATIENCE_S) -> Result:
        """Run a shell script there by hand, as a user would."""
        return run(self._argv(script), timeout_s=timeout_s, check=False)

    def _argv(self, script: str) -> list[str]:
        argv = ["ssh", "-F", str(self.config), "-p", str(self._port), "-l", "root"]
        return [*argv, "-o", "BatchMode=yes", "-o", "ConnectTimeout=30", "127.0.0.1", script]

    def lines(self, script: str) -> Iterator[str]:
        """Run a shell script there and yield what it says as it says it. Errors: IolabError."""
        errors = self._folder / "errors.txt"
        with errors.open("wb") as stream:
            process = start(self._argv(script), stdout=subprocess.PIPE, stderr=stream)
        try:
            assert process.stdout is not None
            with process.stdout as said:
                for line in said:
                    yield line.decode()
            if process.wait():
                raise IolabError(errors.read_text())
        finally:
            kill_group(process)

    def send(self, path: str, data: bytes) -> None:
        """Put a file there."""
        with tempfile.TemporaryFile() as given:
            given.write(data)
            given.seek(0)
            process = start(self._argv(f"cat > {path}"), stdin=given)
        if process.wait():
            raise IolabError(f"{path} cannot be sent to the server")

    def boot_id(self) -> str:
        """Return what tells this boot from others, or "" while nobody answers."""
        told = self.ssh("cat /proc/sys/kernel/random/boot_id", timeout_s=120)
        return told.stdout.strip() if told.returncode == 0 else ""

    def wait(self, *, other_than: str = "") -> None:
        """Wait until it answers, in another boot than `other_than`. Errors: IolabError."""
        until = time.monotonic() + _BOOT_S
        while self.boot_id() in ("", other_than):
            # QEMU 10 aborts now and then while a guest with several processors looks for its
            # devices (an assertion of msix_table_mmio_write).
            if self._qemu.poll() == -signal.SIGABRT:
                self._switch_on()
            if self._qemu.poll() is not None or time.monotonic() > until:
                said = (self._folder / "qemu.txt").read_text() + self.console.read_text()[-2000:]
                raise IolabError(f"the server does not answer: {said}")
            time.sleep(0.5)

    def _tell(self, command: str) -> None:
        """Tell QEMU's monitor one command."""
        with socket.socket(socket.AF_UNIX) as monitor:
            monitor.connect(str(self._folder / "qmp"))
            with monitor.makefile("rw") as stream:
                stream.readline()
                for word in ("qmp_capabilities", command):
                    stream.write(json.dumps({"execute": word}) + "\n")
                    stream.flush()
                    answer: dict[str, Any] = json.loads(stream.readline())
                    if "error" in answer:
                        raise IolabError(f"{word}: {answer['error']}")

    def cut_power(self) -> None:
        """Take the power away without a word, and give it back."""
        before = self.boot_id()
        self._tell("system_reset")
        self.wait(other_than=before)

    def break_connections(self) -> None:
        """Kill every sshd that serves a connection, this one too."""
        self.ssh("pkill -KILL -f '^sshd: '")
