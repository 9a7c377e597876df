# SPDX-License-Identifier: MIT
from __future__ import annotations

import lzma
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from icountvm import kernels
from icountvm.catalogue import CATALOGUE
from icountvm.kernels import add_kernel, get_kernel, list_kernels, remember_kernel_facts
from iolab_base.errors import CannotRunError, UserError
from tests.icountvm.conftest import (
    FakeToolbox,
    Repository,
    child_environment,
    make_deb,
    module,
    vmlinuz,
)
from tests.support.processes import PATIENCE_S

RELEASE = "6.1.0-50-amd64"


def kernel_files(release: str = RELEASE, base: str = "lib/modules") -> dict[str, bytes]:
    """The files of a kernel's package, in the classic packaging."""
    folder = f"{base}/{release}/kernel"
    return {
        f"boot/vmlinuz-{release}": vmlinuz(release),
        f"boot/config-{release}": b"CONFIG_HZ=250\n",
        f"{folder}/drivers/block/null_blk/null_blk.ko": module("configfs"),
        f"{folder}/fs/configfs/configfs.ko.xz": lzma.compress(module()),
        f"{folder}/fs/xfs/xfs.ko.zst": module("libcrc32c"),
        f"{folder}/sound/snd.ko": module(),
        f"{base}/{release}/modules.order": b"kernel/fs/xfs/xfs.ko\n",
    }


@pytest.fixture(autouse=True)
def _own_cache(cache: Path, toolbox: FakeToolbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "ensure_toolbox", lambda: toolbox)


def test_a_classic_package_becomes_a_small_kernel(tmp_path: Path, cache: Path) -> None:
    deb = make_deb(tmp_path, f"linux-image-{RELEASE}", kernel_files())
    kernel = add_kernel("mine", [deb])
    assert (kernel.name, kernel.release, kernel.source) == ("mine", RELEASE, "given by the user")
    assert kernel.vmlinuz.read_bytes() == vmlinuz(RELEASE)
    assert kernel.config is not None
    assert kernel.config.read_bytes() == b"CONFIG_HZ=250\n"
    kept = {path.relative_to(kernel.modules).as_posix() for path in kernel.modules.rglob("*.*")}
    assert kept == {
        "kernel/drivers/block/null_blk/null_blk.ko",
        "kernel/fs/configfs/configfs.ko",  # what null_blk needs, decompressed
        "kernel/fs/xfs/xfs.ko",
        "modules.dep",
        "modules.order",
    }
    assert (kernel.modules / "kernel/fs/configfs/configfs.ko").read_bytes() == module()
    assert re.fullmatch(r"[0-9a-f]{64}", kernel.identity)
    assert get_kernel("mine") == kernel
    leftovers = {path.name for path in (cache / "kernels").iterdir()}
    assert leftovers == {"mine", ".mine.lock"}


def test_the_split_packaging_becomes_the_same(tmp_path: Path) -> None:
    release = "7.2.12+deb13-amd64"
    base = f"usr/lib/modules/{release}"
    files = kernel_files(release, "usr/lib/modules")
    debs = [
        make_deb(tmp_path, f"linux-image-{release}", {}),
        make_deb(tmp_path, f"linux-binary-{release}", {f"{base}/vmlinuz": vmlinuz(release)}),
        make_deb(tmp_path, f"linux-base-{release}", {f"{base}/config": b"CONFIG_HZ=1000\n"}),
        make_deb(
            tmp_path,
            f"linux-modules-{release}",
            {name: data for name, data in files.items() if name.startswith("usr")},
        ),
    ]
    kernel = add_kernel("new", debs)
    assert kernel.release == release
    assert kernel.config is not None
    assert kernel.config.read_bytes() == b"CONFIG_HZ=1000\n"
    assert (kernel.modules / "kernel/fs/xfs/xfs.ko").is_file()


def test_a_kernel_and_its_modules_directory(tmp_path: Path) -> None:
    for name, data in kernel_files().items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(data)
    image, modules = tmp_path / "boot" / f"vmlinuz-{RELEASE}", tmp_path / "lib/modules" / RELEASE
    kernel = add_kernel("built", [image, modules])
    assert kernel.release == RELEASE
    assert kernel.config is not None
    deb = make_deb(tmp_path, f"linux-image-{RELEASE}", kernel_files())
    assert add_kernel("packaged", [deb]).identity == kernel.identity


def _truncated(folder: Path) -> list[Path]:
    deb = make_deb(folder, f"linux-image-{RELEASE}", kernel_files())
    deb.write_bytes(deb.read_bytes()[:-4000])
    return [deb]


def _empty_deb(folder: Path) -> list[Path]:
    (folder / "x.deb").touch()
    return [folder / "x.deb"]


def _package(name: str, files: Mapping[str, bytes], architecture: str = "amd64") -> object:
    return lambda folder: [make_deb(folder, name, files, architecture=architecture)]


def _without(part: str) -> dict[str, bytes]:
    return {name: data for name, data in kernel_files().items() if part not in name}


def _mixed(folder: Path) -> list[Path]:
    (folder / "vmlinuz").write_bytes(vmlinuz("6.6.6"))
    (folder / RELEASE).mkdir()
    return [folder / "vmlinuz", folder / RELEASE]


@pytest.mark.parametrize(
    ("files", "sentence"),
    [
        (_truncated, r"\.deb is not a whole package"),
        (_empty_deb, r"\.deb is not a whole package: it is no ar archive"),
        (_package("hello", {"usr/bin/hello": b""}), r"the packages contain no kernel \(vmlinuz\)"),
        (_package("linux", kernel_files(), "arm64"), r"is for arm64: the virtual .* are amd64"),
        (_package("linux", _without("modules")), rf"no modules for {RELEASE}: give the linux-mod"),
        (
            _package("linux", kernel_files() | {f"boot/vmlinuz-{RELEASE}": b"\x7fELF"}),
            r"is not a Linux kernel for x86: it has no",
        ),
        (
            _package("linux", kernel_files() | {"boot/vmlinuz-6.6.6": vmlinuz("6.6.6")}),
            r"the packages contain 2 kernels: give those of exactly one",
        ),
        (_mixed, rf"is 6\.6\.6, but the modules are for {RELEASE}"),
        (lambda folder: [folder / "none"], r"^no such file: "),
        (lambda folder: [folder], r"^give the kernel's packages .*, or one vmlinuz and"),
        (lambda _: [], r"^give the kernel's packages .*, or one vmlinuz and"),
    ],
)
def test_what_is_no_kernel_is_the_users_mistake(
    tmp_path: Path,
    cache: Path,
    files: object,
    sentence: str,
) -> None:
    assert callable(files)
    given = files(tmp_path)
    with pytest.raises(UserError, match=sentence) as caught:
        add_kernel("mine", given)
    assert "\n" not in str(caught.value)
    assert not (cache / "kernels" / "mine").exists()


@pytest.mark.parametrize("name", ["", "../x", "a/b", ".hidden", "x" * 65])
def test_a_name_that_is_no_name(name: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="invalid kernel name"):
        add_kernel(name, [tmp_path])
    with pytest.raises(UserError, match="unknown kernel"):
        get_kernel(name)


def test_an_unknown_kernel_names_the_known_and_the_nearest() -> None:
    known = r"known are 5\.10, 6\.1, 6\.8, 6\.12, 7\.2"
    with pytest.raises(UserError, match=rf"^unknown kernel '6\.13': {known}; did you mean 6\.1"):
        get_kernel("6.13")


def test_a_damaged_kernel_is_not_used(tmp_path: Path) -> None:
    kernel = add_kernel("mine", [make_deb(tmp_path, "linux", kernel_files())])
    whole = kernel.vmlinuz.read_bytes()
    kernel.vmlinuz.write_bytes(whole[:-1] + b"x")
    with pytest.raises(UserError, match="mine is damaged in the cache: add it again"):
        get_kernel("mine")
    kernel.vmlinuz.write_bytes(whole)
    assert get_kernel("mine") == kernel
    (kernel.modules / "modules.dep").write_text("")
    with pytest.raises(UserError, match="damaged"):
        get_kernel("mine")
    (kernel.vmlinuz.parent / "kernel.json").write_text("[]")
    with pytest.raises(UserError, match="damaged"):
        get_kernel("mine")


def test_a_kernel_replaces_one_of_its_name(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    old = add_kernel("mine", [make_deb(tmp_path / "a", "linux", kernel_files())])
    new = add_kernel("mine", [make_deb(tmp_path, "linux", kernel_files("6.6.6"))])
    assert new.release == "6.6.6"
    assert new.identity != old.identity
    assert get_kernel("mine") == new


def test_what_a_kernel_said_is_remembered_until_it_is_replaced(tmp_path: Path) -> None:
    kernel = add_kernel("mine", [make_deb(tmp_path, "linux", kernel_files())])
    remember_kernel_facts(kernel, {"scheduler": "EEVDF"})
    assert get_kernel("mine") == kernel

    def facts() -> object:
        return next(status.facts for status in kernels_listed() if status.name == "mine")

    def kernels_listed() -> list[kernels.KernelStatus]:
        return [kernels._status("mine")]

    assert facts() == {"scheduler": "EEVDF"}
    (kernel.vmlinuz.parent / "facts.json").write_text("[]")
    assert facts() is None
    remember_kernel_facts(kernel, {"scheduler": "EEVDF"})
    (tmp_path / "b").mkdir()
    add_kernel("mine", [make_deb(tmp_path / "b", "linux", kernel_files("6.6.6"))])
    assert facts() is None


def test_a_catalogued_kernel_is_fetched_once(
    repository: Repository, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    deb = make_deb(tmp_path, f"linux-image-{RELEASE}", kernel_files(), version="6.1.176-1")
    repository.publish({"kernel-6.1": [deb]})
    kernel = get_kernel("6.1")
    assert kernel.source == f"linux-image-{RELEASE} 6.1.176-1"
    told = [
        f"downloading linux-image-{RELEASE} 6.1.176-1",
        f"unpacking linux-image-{RELEASE}",
    ]
    assert caplog.messages == told
    repository.folder.rename(tmp_path / "gone")
    assert get_kernel("6.1") == kernel
    assert caplog.messages == told


def test_all_packages_of_a_kernel_are_unpacked(repository: Repository, tmp_path: Path) -> None:
    release, version = "7.2.12+deb13-amd64", "7.2.12-1~bpo13+1"
    files = kernel_files(release, "usr/lib/modules")
    split = {
        "image": {},
        "binary": {f"usr/lib/modules/{release}/vmlinuz": vmlinuz(release)},
        "modules": {name: data for name, data in files.items() if name.startswith("usr")},
    }
    debs = [
        make_deb(tmp_path, f"linux-{part}-{release}", data, version=version)
        for part, data in split.items()
    ]
    repository.publish({"kernel-7.2": debs})
    kernel = get_kernel("7.2")
    assert (kernel.release, kernel.source) == (release, f"linux-image-{release} {version}")


def test_the_kernels_of_two_locks_lie_side_by_side(repository: Repository, tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    old = make_deb(tmp_path, f"linux-image-{RELEASE}", kernel_files(), version="6.1.176-1")
    release = "6.1.0-51-amd64"
    new = make_deb(tmp_path, f"linux-image-{release}", kernel_files(release), version="6.1.180-1")
    repository.publish({"kernel-6.1": [old]})
    first = get_kernel("6.1")
    repository.publish({"kernel-6.1": [new]})
    second = get_kernel("6.1")
    assert (first.release, second.release) == (RELEASE, release)
    repository.folder.rename(tmp_path / "gone")
    repository.publish_lock({"kernel-6.1": [old]})
    assert get_kernel("6.1") == first


def test_a_kernel_that_the_user_adds_goes_before_the_catalogues(
    repository: Repository, tmp_path: Path
) -> None:
    deb = make_deb(tmp_path, f"linux-image-{RELEASE}", kernel_files(), version="6.1.176-1")
    repository.publish({"kernel-6.1": [deb]})
    get_kernel("6.1")
    own = make_deb(tmp_path, "linux-own", kernel_files("6.6.6"))
    assert get_kernel("6.1") != add_kernel("6.1", [own]) == get_kernel("6.1")


def test_the_list_says_where_each_kernel_stands(repository: Repository, tmp_path: Path) -> None:
    deb = make_deb(tmp_path, f"linux-image-{RELEASE}", kernel_files(), version="6.1.176-1")
    ubuntus = make_deb(tmp_path, "linux-image-unsigned-6.8.0-31-generic", {}, version="6.8.0-31.31")
    repository.publish({"kernel-6.1": [deb]})
    add_kernel("mine", [deb])
    listed = {status.name: status for status in list_kernels()}
    assert list(listed) == [*CATALOGUE, "mine"]
    assert (listed["6.1"].state, listed["6.1"].release) == ("fetchable", RELEASE)
    assert (listed["mine"].state, listed["mine"].release) == ("cached", RELEASE)
    assert listed["5.10"].state == "unreachable"
    assert "kernel-5.10" in listed["5.10"].reason
    repository.publish({"kernel-6.8": [ubuntus]}, "ubuntu")
    with pytest.raises(CannotRunError, match=r"^6\.8 cannot be fetched") as caught:
        get_kernel("6.8")
    said = str(caught.value)
    assert "\n" not in said
    assert all(noun in said for noun in ("IOLAB_MIRROR_UBUNTU", "iolab kernels add 6.8"))


def test_a_kernel_that_left_the_mirror_is_one_sentence(
    repository: Repository, tmp_path: Path, cache: Path
) -> None:
    deb = make_deb(tmp_path, f"linux-image-{RELEASE}", kernel_files(), version="6.1.176-1")
    repository.publish({"kernel-6.1": [deb]})
    (repository.folder / "pool" / deb.name).unlink()
    with pytest.raises(CannotRunError, match="IOLAB_SNAPSHOT_DEBIAN") as caught:
        get_kernel("6.1")
    assert "\n" not in str(caught.value)
    assert not list(cache.glob("locked-kernels/6.1-*"))


def test_two_processes_fetch_a_kernel_once(
    repository: Repository, tmp_path: Path, toolbox: FakeToolbox
) -> None:
    deb = make_deb(tmp_path, f"linux-image-{RELEASE}", kernel_files(), version="6.1.176-1")
    repository.publish({"kernel-6.1": [deb]})
    program = (
        "import sys; from pathlib import Path; from iolab.logs import lines_shown\n"
        "from icountvm import kernels\n"
        "from tests.icountvm.conftest import FakeToolbox\n"
        "kernels.ensure_toolbox = lambda: FakeToolbox(Path(sys.argv[1]))\n"
        "with lines_shown(print): kernels.get_kernel('6.1')\n"
    )
    argv = [sys.executable, "-c", program, str(toolbox.root)]
    both = [
        subprocess.Popen(argv, env=child_environment(), stdout=subprocess.PIPE) for _ in range(2)
    ]
    told = b"".join(process.communicate(timeout=PATIENCE_S)[0] for process in both)
    assert [process.returncode for process in both] == [0, 0]
    assert told.count(b"downloading") == 1
