"""The style checks find the violations that they are for."""

from __future__ import annotations

from tests.tidy.headers import check_header, is_pure_place
from tests.tidy.patches import check_patch
from tests.tidy.sizes import MAX_FUNCTION_LINES, MAX_MODULE_LINES, check_source
from tests.tidy.words import Term, Vocabulary

TERMS = Vocabulary(
    [Term("usher", "copy source", ()), Term("let go", "release", ("docs/*",))], skipped=()
)


def found(name: str, text: str) -> list[int]:
    return [violation.line for violation in TERMS.check_text(name, text)]


def test_vocabulary_word_in_prose_and_identifiers_is_found() -> None:
    text = "The usher\n_next_usher = 1\nclass UsherGone:\nUSHER\nusherette\n"
    assert found("a.py", text) == [1, 2, 3, 4]


def test_vocabulary_phrase_in_prose_is_found() -> None:
    assert found("a.py", "it lets go\nLet go of it\n") == [2]


def test_vocabulary_allowed_file_is_skipped() -> None:
    assert found("docs/a.md", "let go\n") == []


def test_check_finds_long_function_and_long_module() -> None:
    body = "    pass\n" * MAX_FUNCTION_LINES
    assert [v.line for v in check_source("a.py", f"x = 1\ndef f():\n{body}")] == [2]
    assert [v.line for v in check_source("a.py", "x = 1\n" * (MAX_MODULE_LINES + 1))] == [1]
    assert not list(check_source("a.py", f"def f():\n{body[:-9]}"))


def test_header_pure_outside_a_core_is_found() -> None:
    assert list(check_header("waltz/net/link.py", '"""Links. Pure."""\n'))
    assert not list(check_header("waltz/client/core/feed.py", '"""Feeds. Pure."""\n'))
    assert list(check_header("waltz/client/core/feed.py", "x = 1\n"))


def test_pure_place_is_a_core_folder_or_the_protocol() -> None:
    assert is_pure_place("waltz/protocol/frames.py")
    assert is_pure_place("services/server/waltz_server/core/reads/feeds.py")
    assert not is_pure_place("waltz/client/client.py")


def test_patch_of_the_clock_of_the_process_is_found() -> None:
    attribute = "patched.set" + "attr("
    for target in ('"waltz.state.store.time.sleep", f)', '"time.sleep", f)', 'time, "sleep", f)'):
        assert [v.line for v in check_patch("a.py", f"\n{attribute}{target}")] == [2]
        assert [v.line for v in check_patch("a.py", f"{attribute}\n    {target}")] == [1]
    for target in ('"a._DEAD_TIME", 1)', 'timer, "sleep", f)', '"a.lifetime.sleep", f)'):
        assert not list(check_patch("a.py", f"{attribute}{target}"))
