"""The `AWS_*` variables as options of the store."""

from __future__ import annotations

import os

import pytest

from omnigraph.effects.environment import s3_variables, take_over_s3_variables
from omnigraph.effects.failures import FailureClass, StorageFailure
from omnigraph.effects.uri import Root

ROOT = Root.parse("s3://bucket/graph")
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "key-hunter2",
    "AWS_SECRET_ACCESS_KEY": "secret-hunter2",
    "AWS_SESSION_TOKEN": "token-hunter2",
}


def test_all_variables_become_options():
    environ = {
        **CREDENTIALS,
        "AWS_REGION": "eu-central-1",
        "AWS_ENDPOINT_URL": "http://127.0.0.1:9000/",
        "AWS_S3_FORCE_PATH_STYLE": "true",
        "AWS_ALLOW_HTTP": "1",
        "UNRELATED": "x",
    }
    assert ROOT.storage_options(environ) == {
        "aws_region": "eu-central-1",
        "aws_access_key_id": "key-hunter2",
        "aws_secret_access_key": "secret-hunter2",
        "aws_session_token": "token-hunter2",
        "aws_endpoint": "http://127.0.0.1:9000",
        "aws_virtual_hosted_style_request": "false",
        "allow_http": "true",
    }


def test_nothing_set_leaves_the_defaults_of_the_client():
    assert ROOT.storage_options({}) == {}
    assert ROOT.storage_options({"AWS_REGION": "", "AWS_ENDPOINT_URL": ""}) == {}


def test_other_roots_need_no_options():
    assert Root.parse("memory://x").storage_options(CREDENTIALS) == {}
    assert Root.parse("/graph").storage_options(CREDENTIALS) == {}


def test_the_environment_of_the_process_is_read_at_each_call(
    no_aws: None, monkeypatch: pytest.MonkeyPatch
):
    assert ROOT.storage_options() == {}
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    assert ROOT.storage_options() == {"aws_region": "eu-west-1"}


def test_the_endpoint_of_the_service_goes_first():
    environ = {"AWS_ENDPOINT_URL": "https://all", "AWS_ENDPOINT_URL_S3": "https://s3"}
    assert ROOT.storage_options(environ)["aws_endpoint"] == "https://s3"


def test_virtual_hosted_style_puts_the_bucket_into_the_host():
    environ = {"AWS_S3_FORCE_PATH_STYLE": "false", "AWS_ENDPOINT_URL": "https://store.example:9000"}
    assert ROOT.storage_options(environ) == {
        "aws_virtual_hosted_style_request": "true",
        "aws_endpoint": "https://bucket.store.example:9000",
    }
    environ["AWS_ENDPOINT_URL"] = "https://bucket.store.example:9000"
    assert ROOT.storage_options(environ)["aws_endpoint"] == "https://bucket.store.example:9000"


@pytest.mark.parametrize(
    ("environ", "named"),
    [
        ({"AWS_ENDPOINT_URL": "http://127.0.0.1:9000"}, "AWS_ALLOW_HTTP=true"),
        ({"AWS_ENDPOINT_URL": "http://h", "AWS_ALLOW_HTTP": "false"}, "AWS_ALLOW_HTTP=true"),
        ({"AWS_ENDPOINT_URL": "127.0.0.1:9000"}, "AWS_ENDPOINT_URL"),
        ({"AWS_ENDPOINT_URL": "ftp://host"}, "AWS_ENDPOINT_URL"),
        ({"AWS_ENDPOINT_URL": "https://host:port"}, "AWS_ENDPOINT_URL"),
        ({"AWS_ENDPOINT_URL": "https://[::1"}, "AWS_ENDPOINT_URL"),
        ({"AWS_ENDPOINT_URL_S3": "https://u:hunter2@host"}, "AWS_ENDPOINT_URL_S3"),
        ({"AWS_ALLOW_HTTP": "perhaps"}, "AWS_ALLOW_HTTP"),
        ({"AWS_S3_FORCE_PATH_STYLE": "2"}, "AWS_S3_FORCE_PATH_STYLE"),
        ({"AWS_SECRET_ACCESS_KEY": "hunter2\n"}, "AWS_SECRET_ACCESS_KEY"),
        ({"AWS_SESSION_TOKEN": "hunter2 x"}, "AWS_SESSION_TOKEN"),
    ],
)
def test_c_sto_046_an_unusable_variable_is_named_and_not_shown(environ: dict[str, str], named: str):
    with pytest.raises(StorageFailure) as caught:
        ROOT.storage_options(environ)
    assert caught.value.failure_class is FailureClass.CONFIGURATION
    assert named in caught.value.render()
    assert "hunter2" not in f"{caught.value.render()} {caught.value!r}"


def test_a_process_reaches_s3_as_the_one_that_sent_its_work(monkeypatch: pytest.MonkeyPatch):
    for name in list(os.environ):
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_REGION", "here")
    monkeypatch.setenv("AWS_PROFILE", "not of the store")
    try:
        assert s3_variables() == {"AWS_REGION": "here"}
        take_over_s3_variables({"AWS_REGION": "there", "AWS_ACCESS_KEY_ID": "key"})
        assert ROOT.storage_options() == {"aws_region": "there", "aws_access_key_id": "key"}
        # What it sends on, to executors for instance, is what it was sent.
        assert s3_variables() == {"AWS_REGION": "there", "AWS_ACCESS_KEY_ID": "key"}
    finally:
        take_over_s3_variables({})
    assert ROOT.storage_options() == {"aws_region": "here"}
