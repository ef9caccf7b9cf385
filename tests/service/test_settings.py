from __future__ import annotations

import signal
import subprocess
import sys
from argparse import ArgumentParser
from pathlib import Path

import pytest

from service.settings import ENVIRONMENT_ONLY, Settings, SettingsError, add_flags, load_settings

SHIPPED = Path(__file__).resolve().parents[2] / "weights" / "minilm-l6-bert-en"


def from_flags(*flags: str) -> Settings:
    parser = ArgumentParser()
    add_flags(parser)
    return load_settings(vars(parser.parse_args(flags)))


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("model_id", "/models/x", "/models/x"),
        ("revision", "main", "main"),
        ("offline", "true", True),
        ("served_model_name", "bert", "bert"),
        ("dtype", "bfloat16", "bfloat16"),
        ("device", "cuda:3", "cuda:3"),
        ("pooling", "cls", "cls"),
        ("auto_truncate", "false", False),
        ("max_batch_tokens", "4096", 4096),
        ("max_concurrent_requests", "7", 7),
        ("max_queue_tokens", "99", 99),
        ("max_client_batch_size", "32", 32),
        ("max_top_k", "5", 5),
        ("payload_limit", "10", 10),
        ("request_timeout_seconds", "0.5", 0.5),
        ("drain_timeout_seconds", "0", 0.0),
        ("shutdown_delay_seconds", "3", 3.0),
        ("pass_timeout_seconds", "2.5", 2.5),
        ("workers", "3", 3),
        ("cpu_threads", "3", 3),
        ("host", "::1", "::1"),
        ("port", "0", 0),
        ("uds", "/tmp/socket", "/tmp/socket"),
        ("root_path", "/bert", "/bert"),
        ("trusted_proxies", "10.0.0.0/8, ::1", ("10.0.0.0/8", "::1")),
        ("cors_allow_origin", "https://a.example,https://b.example", ("https://a.example", "https://b.example")),
        ("api_key_file", "/run/secrets/keys", "/run/secrets/keys"),
        ("ssl_certfile", "/tls/crt", "/tls/crt"),
        ("access_log", "false", False),
        ("json_output", "true", True),
        ("otlp_endpoint", "http://collector:4318", "http://collector:4318"),
        ("otlp_service_name", "bert", "bert"),
    ],
)
def test_every_setting_comes_by_flag_and_by_environment(
    name: str, text: str, value: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert getattr(Settings(), name) != value
    assert getattr(from_flags(f"--{name.replace('_', '-')}", text), name) == value
    monkeypatch.setenv(name.upper(), text)
    assert getattr(from_flags(), name) == value


def test_the_table_above_is_complete() -> None:
    [parametrize] = test_every_setting_comes_by_flag_and_by_environment.pytestmark  # type: ignore[attr-defined]
    rest = {"api_key", "ssl_keyfile", "ssl_keyfile_password"}
    assert {row[0] for row in parametrize.args[1]} | rest == Settings.model_fields.keys()


def test_a_flag_wins_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PORT", "1111")
    assert from_flags("--port", "2222").port == 2222


def test_an_empty_variable_is_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("API_KEY", "")
    monkeypatch.setenv("PORT", "")
    settings = from_flags()
    assert settings.api_key is None
    assert settings.port == 8000


def test_the_host_name_of_a_container_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOSTNAME", "3f2c1d0b9a87")
    assert from_flags().host == "0.0.0.0"
    assert from_flags("--hostname", "127.0.0.1").host == "127.0.0.1"


@pytest.mark.parametrize("flag", ["--json-output", "--auto-truncate"])
def test_a_switch_needs_no_value(flag: str) -> None:
    assert getattr(from_flags(flag), flag.removeprefix("--").replace("-", "_")) is True


@pytest.mark.parametrize("flag", ["access-log", "auto-truncate"])
def test_what_is_on_can_be_turned_off_without_a_value(flag: str) -> None:
    assert getattr(from_flags(f"--no-{flag}"), flag.replace("-", "_")) is False


def test_the_password_of_a_key_is_no_flag(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SystemExit):
        from_flags("--ssl-keyfile-password", "sesame")
    monkeypatch.setenv("SSL_KEYFILE_PASSWORD", "sesame\n")
    settings = from_flags("--ssl-certfile", "a", "--ssl-keyfile", "b")
    assert (settings.ssl_certfile, settings.ssl_keyfile) == ("a", "b")
    assert settings.ssl_keyfile_password is not None
    assert settings.ssl_keyfile_password.get_secret_value() == "sesame"
    assert "sesame" not in repr(settings)


@pytest.mark.parametrize(
    "endpoint", ["https://a.example", "http://localhost:4318/", "http://[::1]:4318", "http://collector:4318/v1/traces"]
)
def test_collectors(endpoint: str) -> None:
    assert from_flags("--otlp-endpoint", endpoint).otlp_endpoint == endpoint


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--port", "65536"], "--port (PORT) is '65536': input should be less than or equal to 65535"),
        (["--port", "http"], "--port (PORT) is 'http': input should be a valid integer"),
        (["--dtype", "int4"], "--dtype (DTYPE) is 'int4': input should be 'auto', 'float32', 'float16' or 'bfloat16'"),
        (
            ["--device", "tpu"],
            "--device (DEVICE) is 'tpu': must be auto, cpu, mps, cuda or, for one of several, cuda:0",
        ),
        (["--device", "cuda:"], "--device (DEVICE) is 'cuda:': must be auto, cpu, mps, cuda"),
        (["--max-top-k", "0"], "--max-top-k (MAX_TOP_K) is '0': input should be greater than or equal to 1"),
        (["--request-timeout-seconds", "0"], "is '0': input should be greater than 0"),
        (["--request-timeout-seconds", "inf"], "is 'inf': input should be a finite number"),
        (["--request-timeout-seconds", "86401"], "is '86401': input should be less than or equal to 86400"),
        (["--drain-timeout-seconds", "1e300"], "is '1e300': input should be less than or equal to 86400"),
        (["--shutdown-delay-seconds", "86400.5"], "is '86400.5': input should be less than or equal to 86400"),
        (["--auto-truncate", "maybe"], "is 'maybe': input should be a valid boolean"),
        (["--trusted-proxies", "proxy"], "(TRUSTED_PROXIES) is 'proxy': 'proxy' does not appear to be an IPv4 or IPv6"),
        (
            ["--root-path", "bert"],
            "--root-path (ROOT_PATH) is 'bert': must be empty, or begin with a slash and not end",
        ),
        (["--root-path", "/bert/"], "--root-path (ROOT_PATH) is '/bert/': must be empty, or begin with a slash"),
        (["--root-path", "/"], "--root-path (ROOT_PATH) is '/': must be empty, or begin with a slash"),
        (["--api-key", ""], "--api-key (API_KEY): must not be empty"),
        (["--api-key", " \n"], "--api-key (API_KEY): must not be empty"),
        (["--revision", ""], "--revision (REVISION) is '': must not be empty"),
        (
            ["--cors-allow-origin", "https://a.example,foo"],
            "is 'https://a.example,foo': 'foo' must be * or scheme://host or scheme://host:port, without a path",
        ),
        (["--cors-allow-origin", "https://a.example/"], "'https://a.example/' must be * or scheme://host"),
        (["--cors-allow-origin", "https://*.example"], "'https://*.example' must be * or scheme://host"),
        (["--cors-allow-origin", "https://a.example:x"], "'https://a.example:x' must be * or scheme://host"),
        (["--uds", "/s", "--port", "80"], "--uds (UDS) is '/s' and --port (PORT) is '80': give only one of them"),
        (
            ["--ssl-keyfile", "/k"],
            "--ssl-keyfile (SSL_KEYFILE) is '/k' and --ssl-certfile (SSL_CERTFILE) is not set: a key needs its",
        ),
        (["--otlp-endpoint", "collector:4317"], "(OTLP_ENDPOINT) is 'collector:4317': must be http://host:port or"),
        (["--otlp-endpoint", "http://a/b"], "(OTLP_ENDPOINT) is 'http://a/b': must be http://host:port or https"),
        (["--otlp-endpoint", "http://me:pw@a"], "(OTLP_ENDPOINT) is 'http://me:pw@a': must be http://host:port"),
        (
            ["--max-queue-tokens", "99", "--max-batch-tokens", "101"],
            "--max-queue-tokens (MAX_QUEUE_TOKENS) is 99 and --max-batch-tokens (MAX_BATCH_TOKENS) is 101: the",
        ),
        (
            ["--max-client-batch-size", "9", "--max-concurrent-requests", "7"],
            "(MAX_CLIENT_BATCH_SIZE) is 9 and --max-concurrent-requests (MAX_CONCURRENT_REQUESTS) is 7: a request of",
        ),
        (
            ["--max-client-batch-size", "4097"],
            "is 4097 and --max-concurrent-requests (MAX_CONCURRENT_REQUESTS) is 4096",
        ),
    ],
)
def test_faults_name_setting_value_and_rule(flags: list[str], message: str) -> None:
    with pytest.raises(SettingsError) as caught:
        from_flags(*flags)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "origin", ["*", "https://a.example", "http://localhost:3000", "http://[::1]:8080", "chrome-extension://abc"]
)
def test_origins(origin: str) -> None:
    assert from_flags("--cors-allow-origin", origin).cors_allow_origin == (origin,)


def test_all_faults_are_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAX_TOP_K", "many")
    with pytest.raises(SettingsError) as caught:
        from_flags("--port", "-1")
    assert [line.split()[0] for line in str(caught.value).splitlines()] == ["--max-top-k", "--port"]


def test_the_key_is_in_no_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_KEYFILE_PASSWORD", " ")
    with pytest.raises(SettingsError, match=r"SSL_KEYFILE_PASSWORD: must not be empty") as caught:
        from_flags("--api-key", "sesame", "--port", "-1")
    assert "sesame" not in str(caught.value)


def test_space_around_a_key_is_no_part_of_it() -> None:
    key = from_flags("--api-key", " open sesame\n").api_key
    assert key is not None
    assert key.get_secret_value() == "open sesame"


def test_fewer_concurrent_requests_than_the_default_batch_are_allowed() -> None:
    assert from_flags("--max-concurrent-requests", "7").max_concurrent_requests == 7


def test_help_gives_variables_and_defaults() -> None:
    parser = ArgumentParser()
    add_flags(parser)
    text = " ".join(parser.format_help().split())
    assert "--port PORT port to listen on; 0 takes a free one (default: 8000) [PORT]" in text
    assert "write logs as JSON lines (default: false) [JSON_OUTPUT]" in text
    assert all(f"[{name.upper()}]" in text for name in Settings.model_fields.keys() - ENVIRONMENT_ONLY)


def test_the_default_model_is_found_from_anywhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert Path(Settings().model_id) == SHIPPED
    (tmp_path / "weights" / "minilm-l6-bert-en").mkdir(parents=True)
    assert Path(Settings().model_id) == Path("weights/minilm-l6-bert-en")


def test_a_served_name_replaces_the_folder() -> None:
    assert Settings(model_id="/models/x").model_name == "/models/x"
    assert Settings(model_id="/models/x", served_model_name="bert").model_name == "bert"


def test_importing_builds_no_settings() -> None:
    code = "import service.settings, service.app; print('ok')"
    done = subprocess.run(
        [sys.executable, "-c", code], env={"PORT": "not a port"}, capture_output=True, text=True, check=True
    )
    assert done.stdout == "ok\n"


def test_several_workers_need_a_system_with_signals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(signal, "pthread_sigmask", raising=False)
    assert from_flags("--workers", "1").workers == 1
    with pytest.raises(SettingsError, match=r"^--workers \(WORKERS\) is '2': must be 1, this system has no signals"):
        from_flags("--workers", "2")
