from contextlib import nullcontext

import pytest

from tune_tf import secrets
from tune_tf.errors import InvalidSettingsError
from tune_tf.secrets import (
    expand_references,
    is_secret_name,
    mask_all,
    mask_secrets,
    refuse_password,
    register_secrets,
)

AWS = "AKIA" + "Q7" * 8
GITHUB = "ghp_" + "a1B2" * 9


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgresql+psycopg2://u:pw@h/db", "postgresql+psycopg2://u:***@h/db"),
        ("postgresql://h/db?user=u&password=secretly", "postgresql://h/db?user=u&password=***"),
        ("Authorization: Basic dXNlcjpwYXNz", "Authorization: Basic ***"),
        ("{'Authorization': 'Bearer abcdef12'}", "{'Authorization': 'Bearer ***'}"),
        (f"key {AWS}, next", "key ***, next"),
        (f"https://{GITHUB}@github.com/a/b", "https://***@github.com/a/b"),
        ("xoxb-1234567890-abc", "***"),
        ("OpenAI(sk-proj-abcdefghijklmnop)", "OpenAI(***)"),
        ('+api_key = "abcdef123"', '+api_key = "***"'),
        ("DB_PASSWORD=hunter22", "DB_PASSWORD=***"),
    ],
)
def test_what_has_the_shape_of_a_secret_is_masked(text, shown):
    assert mask_secrets(text, {}) == shown


@pytest.mark.parametrize(
    "text",
    [
        "sqlite:////data/mlflow.db",
        "http://host:5000/a@b",
        "git@github.com:a/b.git",
        "postgresql://${USER}:${DB_PASSWORD}@host/db",
        "risk-averse-and-rather-long-name",
        "token=None, password=get_password()",
    ],
)
def test_what_is_no_secret_stays(text):
    assert mask_secrets(text, {}) == text


def test_values_of_secret_environment_variables_are_masked_everywhere():
    environ = {"MY_API_TOKEN": "p@ss/w0rd", "HOME": "/home/ann", "SHORT_KEY": "abc"}
    text = 'raw p@ss/w0rd, in a URI p%40ss%2Fw0rd, in JSON "p@ss/w0rd", /home/ann abc'
    assert mask_secrets(text, environ) == 'raw ***, in a URI ***, in JSON "***", /home/ann abc'
    assert mask_secrets("abcdef-long", {"A_KEY": "abcdef", "B_KEY": "abcdef-long"}) == "***"
    assert mask_all({"key": "hunter2!"}, {"DB_PASSWORD": "hunter2!"}) == {"key": "***"}


@pytest.mark.parametrize(
    ("name", "is_secret"),
    [
        ("AWS_SECRET_ACCESS_KEY", True),
        ("MLFLOW_TRACKING_TOKEN", True),
        ("OPENAI_APIKEY", True),
        ("db_password", True),
        ("GOOGLE_APPLICATION_CREDENTIALS", True),
        ("PWD", False),
        ("OLDPWD", False),
        ("TOKENIZERS_PARALLELISM", False),
        ("KEYBOARD_LAYOUT", False),
    ],
)
def test_a_variables_name_tells_whether_it_holds_a_secret(name, is_secret):
    assert is_secret_name(name) is is_secret


ENVIRON = {"PASSWORD": "p@ss/w:rd", "HOST": "example.org:5000", "URI": "http://u:p%40@h"}


@pytest.mark.parametrize(
    ("uri", "full"),
    [
        ("postgresql://ann:${PASSWORD}@h/db", "postgresql://ann:p%40ss%2Fw%3Ard@h/db"),
        ("https://${HOST}/x", "https://example.org:5000/x"),
        ("${URI}", "http://u:p%40@h"),
        ("postgresql://h/db?password=${PASSWORD}", "postgresql://h/db?password=p%40ss%2Fw%3Ard"),
        ("sqlite:///mlflow.db", "sqlite:///mlflow.db"),
        ("sqlite:///${not closed", "sqlite:///${not closed"),
    ],
)
def test_a_reference_is_replaced_and_encoded_where_a_password_stands(uri, full):
    assert expand_references(uri, "mlflow.tracking_uri", ENVIRON) == full


def test_variables_that_are_not_set_are_all_named_with_the_setting():
    with pytest.raises(InvalidSettingsError, match=r"(?s)searcher.storage .* A, .*variable B,"):
        expand_references("postgresql://${A}:${B}@h", "searcher.storage", {})


@pytest.mark.parametrize(
    ("uri", "holds"),
    [
        ("postgresql://u:p/w@h/db", True),
        ("http://u:pa%40ss@h:1/x", True),
        ("postgresql://h/db?user=u&password=pw", True),
        ("http://u:${MINE}@h", False),
        ("postgresql://db/x?user=u&password=${MINE}", False),
        ("http://h:5000", False),
        ("http://h:5000/a@b", False),
        ("postgresql://u@h/db", False),
        ("sqlite:////data/study.db", False),
    ],
)
def test_a_uri_that_holds_a_password_is_refused(uri, holds):
    with pytest.raises(ValueError, match="must not hold") if holds else nullcontext():
        assert refuse_password(uri) == uri


def test_what_a_uri_refers_to_is_masked_from_then_on(monkeypatch):
    monkeypatch.setattr(secrets, "_registered", frozenset())
    expand_references("mysql://ann:${MINE}@db/x", "storage", {"MINE": "of-the-environment"})
    assert mask_secrets("of-the-environment", {}) == "***"


def test_settings_with_telling_names_are_masked_by_value_from_then_on(monkeypatch):
    monkeypatch.setattr(secrets, "_registered", frozenset())
    text = "open sesame, hidden well, ${REFERENCE}, unknown, image"
    assert mask_secrets(text, {}) == text
    settings = {"pwd": "open sesame", "in": [{"tokens": ["unknown", "hidden well"]}]}
    register_secrets(settings | {"auth": "${REFERENCE}", "key": "image", "max_tokens": 12345678})
    assert mask_secrets(text, {}) == "***, ***, ${REFERENCE}, unknown, image"
