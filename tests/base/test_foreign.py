# SPDX-License-Identifier: MIT
from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from iolab.targets.real import checked_survey
from iolab_base import foreign
from iolab_base.errors import IolabError, UserError
from tests.support.liar import catalogue
from tests.support.payloads import PAYLOADS, controls, with_text


def strings(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [text for pair in value.items() for item in pair for text in strings(item)]
    return [text for item in value for text in strings(item)] if isinstance(value, list) else []


def test_words_stay_as_they_are() -> None:
    for words in ("", "6.1.0-49-amd64", "Intel(R) Xeon(R)  @ 2 GHz", "Größe 12 µs 日本 $x_1$ <b>"):
        assert foreign.line(words) == foreign.text(words) == words
    assert foreign.text("two\n\tlines") == "two\n\tlines"
    assert foreign.line("two\n\tlines") == "two??lines"


@pytest.mark.parametrize("kind", PAYLOADS)
def test_nothing_that_is_obeyed_enters(kind: str) -> None:
    said = PAYLOADS[kind]
    assert foreign.line(said).isprintable()
    assert len(foreign.line(said)) == len(said)
    assert not controls(foreign.text(said))
    with pytest.raises(IolabError, match="invalid scheduler"):
        foreign.name(said, "scheduler")
    document = {said: [said, {"a": said}], "n": [1, 2.5, None, True]}
    found = foreign.document(json.dumps(document))
    assert not any(controls(text) for text in strings(found))
    assert found["n"] == document["n"]
    json.dumps(found, ensure_ascii=False).encode()


def test_a_text_without_end_is_cut() -> None:
    long = "x" * 10_000_000
    assert foreign.line(long) == "x" * (foreign.LINE - 1) + "…"
    assert len(foreign.text(long)) == foreign.TEXT
    assert len(foreign.document(json.dumps([long]))[0]) == foreign.TEXT
    with pytest.raises(IolabError) as error:
        foreign.name(long, "scheduler")
    assert len(str(error.value)) < 200


@pytest.mark.parametrize("said", [None, 5, [], {}, True, "", "-x", ".x", "a b", "a\n", "é", "a/b"])
def test_what_is_no_name_is_refused(said: Any) -> None:
    with pytest.raises(IolabError, match="invalid"):
        foreign.name(said, "scheduler")


@pytest.mark.parametrize("said", ["6.1.0-49-amd64", "7.2.12+deb13-amd64", "5.14.0_x~1", "EEVDF"])
def test_what_kernels_are_called_is_a_name(said: str) -> None:
    assert foreign.name(said, "kernel_release") == said


@pytest.mark.parametrize(
    "said", [b"", b"{", b"\xff", b"[NaN]", b"[1e999]", b"[-Infinity]", b"[" * 100_000]
)
def test_what_is_no_document_is_a_value_error(said: bytes) -> None:
    with pytest.raises(ValueError, match=r"\S"):
        foreign.document(said)


def test_a_document_that_cannot_be_read_is_not_called_damaged(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be read: File name too long"):
        foreign.read_document(tmp_path / ("a" * 300))


@pytest.mark.parametrize("said", [b"[]", b"5", b'{"kernel_release": "6.1"}', b'"ab"', b"{"])
def test_facts_without_the_agents_form_are_one_sentence(said: bytes) -> None:
    with pytest.raises(IolabError, match=r"damaged facts\.json"):
        foreign.facts(said)


@pytest.mark.parametrize("kind", PAYLOADS)
@pytest.mark.parametrize("name", ["kernel_release", "scheduler"])
def test_facts_have_names(name: str, kind: str) -> None:
    made = catalogue("")["facts"]
    assert foreign.facts(json.dumps(made).encode()) == made
    made[name] += PAYLOADS[kind]
    with pytest.raises(IolabError, match=f"invalid {name}"):
        foreign.facts(json.dumps(made).encode())


@pytest.mark.parametrize("kind", PAYLOADS)
def test_a_survey_is_lines_and_names(kind: str) -> None:
    plain, said = catalogue("")["survey"], PAYLOADS[kind]
    assert checked_survey(plain) == plain
    texts = ("kernel_version", "cpu_model", "fio_version", "machine", "lacks")
    found = checked_survey({**plain, **dict.fromkeys(texts, said)})
    assert all(found[name].isprintable() for name in texts)
    for name in ("kernel_release", "kinds"):
        with pytest.raises(IolabError, match="invalid"):
            checked_survey({**plain, name: with_text(plain[name], said)})


@pytest.mark.parametrize("kinds", [[{}], [5], [["loop"]], [None]])
def test_kinds_of_another_type_are_refused(kinds: list[Any]) -> None:
    with pytest.raises(IolabError, match="invalid kind of device"):
        checked_survey({**catalogue("")["survey"], "kinds": kinds})
