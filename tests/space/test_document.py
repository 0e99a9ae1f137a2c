"""YamlDocument: plain data with lines."""

import time

import pytest

from tune_tf.errors import InvalidSettingsError
from tune_tf.space.document import YamlDocument


@pytest.mark.parametrize(
    ("text", "match", "line"),
    [
        pytest.param("", "is empty", None, id="empty"),
        pytest.param("# nothing\n", "is empty", None, id="comment-only"),
        pytest.param("\n- a\n", "must be a mapping like `name: value`, not a list", 2, id="list"),
        pytest.param("word", "must be a mapping .* not 'word'", 1, id="scalar"),
        pytest.param("a: [1\nb: 2\n", "is not YAML: expected ',' or '\\]'", 2, id="syntax"),
        pytest.param("a:\n\t- 1\n", "is not YAML: found character", 2, id="tab"),
        pytest.param("a: *b\n", "is not YAML: found undefined alias 'b'", 1, id="alias"),
        pytest.param("a: 1\n---\nb: 1\n", "but found another document", 2, id="two-documents"),
        pytest.param(
            "a: !!python/object:os.system x\n", "sweep files hold plain data only", 1, id="object"
        ),
        pytest.param(
            "b: 1\na: &x\n  b: *x\n", "or contain themselves through an a", 2, id="circle"
        ),
    ],
)
def test_what_is_no_mapping_is_refused_with_its_line(text, match, line):
    with pytest.raises(InvalidSettingsError, match=match) as caught:
        YamlDocument.parse(text)
    assert [detail.line for detail in caught.value.details] == [line]


def test_every_key_has_its_line():
    document = YamlDocument.parse("a: 1\nb:\n  c: {d: 2,\n    e: 3}\n")
    assert document.places == {"a": 1, "b": 2, "b.c": 3, "b.c.d": 3, "b.c.e": 4}


def test_keys_given_twice_are_all_faults():
    document = YamlDocument.parse("a: 1\nb: {c: 1, c: 2}\na: 2\n")
    assert [(detail.where, detail.line) for detail in document.errors] == [("b.c", 2), ("a", 3)]


def test_numbers_are_plain_and_words_stay_words():
    assert YamlDocument.parse("{a: 1e-3, b: yes, c: 0x10}").data == {"a": 1e-3, "b": "yes", "c": 16}


B = {"choice": [1], "when": {}}


@pytest.mark.parametrize(
    ("override", "data"),
    [
        pytest.param("a=2", {"a": 2, "b": B}, id="scalar"),
        pytest.param("a=", {"a": None, "b": B}, id="nothing"),
        pytest.param("c.d=x=y", {"a": 1, "b": B, "c": {"d": "x=y"}}, id="new"),
        pytest.param("b.int=[1, 2]", {"a": 1, "b": {"int": [1, 2], "when": {}}}, id="other-kind"),
        pytest.param("a.int=[1, 2]", {"a": {"int": [1, 2]}, "b": B}, id="kind"),
    ],
)
def test_an_override_wins(override, data):
    document = YamlDocument.parse("a: 1\nb: {choice: [1], when: {}}\n")
    assert document.overriding([override], exclusive=["choice", "int"]).data == data
    assert document.data == {"a": 1, "b": B}


@pytest.mark.parametrize(
    ("override", "text"),
    [
        pytest.param("a", "must be key=value", id="no-value"),
        pytest.param("=1", "must be key=value", id="no-key"),
        pytest.param("a..b=1", "must be key=value", id="empty-part"),
        pytest.param("a=[1", "the value is not YAML", id="syntax"),
        pytest.param("a={b: 1, b: 2}", "is given twice", id="twice"),
        pytest.param("a.b=1", "a is 1, which has no keys: set a as a whole", id="scalar"),
    ],
)
def test_a_malformed_override_is_named(override, text):
    (detail,) = YamlDocument.parse("a: 1\n").overriding([override]).errors
    assert detail.where == f"override {override}"
    assert text in detail.what


def _aliases(first, entry, joined):
    """Return anchors that each stand for ten of the one before."""
    lines = (entry.format(n, joined.join([f"*a{n - 1}"] * 10)) for n in range(1, 12))
    return "".join([f"a0: &a0 {first}\n", *lines])


HOSTILE = {
    "a billion values": (_aliases("[x]", "a{0}: &a{0} [{1}]\n", ","), "more than 50,000 values"),
    "a billion merges": (_aliases("{x: 1}", "a{0}: &a{0} {{<<: [{1}]}}\n", ","), "more than 50,"),
    "decimal digits": (f"a: {'9' * 10_000}", r"line 1: is not YAML: 9+… is too large a number"),
    "hexadecimal digits": (f"a: 0x{'f' * 100_000}", "0xf+… is too large a number"),
    "lists": (f"a: {'[' * 10_000}{']' * 10_000}", "nested more than 64 deep"),
    "mappings": ("{a: " * 10_000, "nested more than 64 deep"),
    "lists in lines": ("- " * 10_000, "nested more than 64 deep"),
    "keys": ("? " * 10_000, "nested more than 64 deep"),
    "long text": ("-" * 100_000, "must be a mapping like `name: value`, not '-{70,90}…$"),
    "long tag": ("a: !" + "x" * 100_000, "could not determine a constructor for the tag"),
    "object": ("a: !!python/object/apply:os.abort []", "sweep files hold plain data only"),
    "no number": ("b: 1\na: !!int abc", "line 2: is not YAML: abc cannot be read"),
    "no truth": ("a: !!bool abc", "abc cannot be read"),
    "no date": ("a: 2026-02-31", "cannot be read .*day is out of range"),
    "mapping as key": ("? [a, {b: c}]\n: 1\n", "is not YAML: unhashable type"),
    "no character": (r'a: "\U00110000"', "is not YAML: "),
    "no character at all": (r'a: "\UFFFFFFFF"', "is not YAML: "),
}


@pytest.mark.parametrize(("text", "told"), HOSTILE.values(), ids=HOSTILE)
def test_absurd_yaml_is_refused_at_once_and_in_a_line(text, told):
    began_s = time.process_time()
    with pytest.raises(InvalidSettingsError, match=told) as refused:
        YamlDocument.parse(f"{text}\n")
    assert time.process_time() - began_s < 2
    assert len(str(refused.value)) < 500
    assert "\n" not in str(refused.value)


def test_a_huge_file_is_refused_unread(tmp_path):
    path = tmp_path / "space.yaml"
    path.write_text("a: 1\n" * 2_000_000)
    with pytest.raises(
        InvalidSettingsError, match=r"(?s)space.yaml.*is larger than 500 kB: settin"
    ):
        YamlDocument.read(path)
