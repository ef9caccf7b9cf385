"""Every setting of the service, once: name, default, unit and check.

A setting `max_batch_tokens` is the flag `--max-batch-tokens` and the environment variable `MAX_BATCH_TOKENS`.
Flags win over the environment. An empty variable counts as unset, so that a compose file can pass all of them on.
The host is `HOST`; `HOSTNAME`, which names the container in every container, is never read.
"""

from __future__ import annotations

import re
import signal
from argparse import ArgumentParser
from collections.abc import Mapping
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails, PydanticUndefined
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from service.tasks import Pooling

# As browsers send it.
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://([^\s/?#@:\[\]*]+|\[[0-9a-f:.]+\])(:[0-9]{1,5})?")

# A collector's address, or that of its traces.
_COLLECTOR = re.compile(r"https?://([^\s/?#@:\[\]]+|\[[0-9a-f:.]+\])(:[0-9]{1,5})?(/|/v1/traces)?", re.IGNORECASE)

SECRETS = frozenset({"api_key", "ssl_keyfile_password"})

# A command line is seen by every user of the machine. `api_key` is a flag too because TEI has it.
ENVIRONMENT_ONLY = frozenset({"ssl_keyfile_password"})

DEFAULT_MODEL = Path("weights") / "minilm-l6-bert-en"


# One day; an event loop's timers end somewhere beyond.
LONGEST_SECONDS = 86_400


class SettingsError(ValueError):
    """Settings that the service can't start with; each line names the setting, the fault and the rule."""


def default_model_id() -> str:
    """The shipped checkpoint: below the working directory, else beside the source tree."""
    beside_source = Path(__file__).resolve().parent.parent / DEFAULT_MODEL
    return str(beside_source if beside_source.is_dir() and not DEFAULT_MODEL.is_dir() else DEFAULT_MODEL)


class Settings(BaseSettings):
    """All settings. Frozen; built by `load_settings`, or directly in tests.

    Raises:
        pydantic.ValidationError: a value is not allowed, or two values contradict each other.
    """

    model_config = SettingsConfigDict(env_ignore_empty=True, extra="forbid", frozen=True, protected_namespaces=())

    model_id: str = Field(
        default_factory=default_model_id,
        min_length=1,
        description="folder of the checkpoint, or its name on the Hugging Face hub "
        f"(default: {DEFAULT_MODEL.as_posix()})",
    )
    revision: str | None = Field(
        default=None,
        min_length=1,
        description="branch, tag or commit on the hub; with a folder, what /info shall report",
    )
    offline: bool = Field(default=False, description="never ask the hub: a name must be in its cache")
    served_model_name: str | None = Field(
        default=None, min_length=1, description="name that clients see (default: the model id)"
    )
    dtype: Literal["auto", "float32", "float16", "bfloat16"] = Field(
        default="auto", description="number format of the computation: auto, float32, float16 or bfloat16"
    )
    device: str = Field(
        default="auto",
        description="auto, cpu, cuda, cuda:N or mps; auto takes the best there is",
    )
    pooling: Pooling | None = Field(
        default=None, description="pooler, cls, mean or max (default: what the checkpoint's files say)"
    )
    auto_truncate: bool = Field(default=True, description="cut over-long texts of embedding requests that don't say")
    max_batch_tokens: int | None = Field(
        default=None,
        ge=1,
        description="most tokens in the passes that run at one time, of which a CPU has one a thread "
        "(default: by device, measured on a CPU)",
    )
    max_concurrent_requests: int = Field(
        default=4096, ge=1, description="most texts and pairs accepted and not yet answered"
    )
    max_queue_tokens: int | None = Field(
        default=None, ge=1, description="most tokens that wait for a pass (default: from the token budget of a pass)"
    )
    max_client_batch_size: int = Field(default=2048, ge=1, description="most inputs in one request")
    max_top_k: int = Field(default=1000, ge=1, description="most predictions per mask, and most targets")
    payload_limit: int = Field(default=2_000_000, ge=1, description="longest request body, in bytes")
    request_timeout_seconds: float = Field(
        default=30.0,
        gt=0,
        le=LONGEST_SECONDS,
        allow_inf_nan=False,
        description="longest time from arrival to the start of the pass",
    )
    drain_timeout_seconds: float = Field(
        default=20.0,
        ge=0,
        le=LONGEST_SECONDS,
        allow_inf_nan=False,
        description="longest wait at shutdown for accepted requests",
    )
    pass_timeout_seconds: float = Field(
        default=120.0,
        gt=0,
        le=LONGEST_SECONDS,
        allow_inf_nan=False,
        description="a pass that takes longer hangs for good: the service ends, to be restarted",
    )
    shutdown_delay_seconds: float = Field(
        default=0.0,
        ge=0,
        le=LONGEST_SECONDS,
        allow_inf_nan=False,
        description="time at shutdown between readiness 503 and the last new connection",
    )
    workers: int = Field(
        default=1,
        ge=1,
        description="processes that serve, each with a model and limits of its own, on a GPU or its share of the CPUs",
    )
    cpu_threads: int | None = Field(
        default=None,
        ge=1,
        description="threads that compute on a CPU, in each worker; if not set, the workers share the CPUs that the "
        "container or the machine gives",
    )
    host: str = Field(default="0.0.0.0", min_length=1, description="address to listen on")
    port: int = Field(default=8000, ge=0, le=65535, description="port to listen on; 0 takes a free one")
    uds: str | None = Field(default=None, min_length=1, description="Unix socket to listen on instead of host and port")
    root_path: str = Field(default="", description="path prefix that a proxy takes off, such as /bert")
    trusted_proxies: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(), description="comma-separated addresses or networks whose X-Forwarded-For is believed"
    )
    cors_allow_origin: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(), description="comma-separated origins that browsers may call from, or *"
    )
    api_key: SecretStr | None = Field(
        default=None, min_length=1, description="key that requests must carry as a bearer token"
    )
    api_key_file: str | None = Field(
        default=None, min_length=1, description="file of further keys, a name:key a line; the name is the client's"
    )
    ssl_certfile: str | None = Field(
        default=None, min_length=1, description="certificate chain in PEM; with it, the port speaks TLS"
    )
    ssl_keyfile: str | None = Field(
        default=None, min_length=1, description="private key in PEM, if it is not in the file of the certificate"
    )
    ssl_keyfile_password: SecretStr | None = Field(
        default=None, min_length=1, description="password of the private key"
    )
    access_log: bool = Field(default=True, description="write a line for each answered request that is no probe")
    json_output: bool = Field(default=False, description="write logs as JSON lines")
    otlp_endpoint: str | None = Field(
        default=None, min_length=1, description="collector that gets traces, by OTLP over HTTP: http://localhost:4318"
    )
    otlp_service_name: str = Field(default="bert-service", min_length=1, description="name of the service in traces")

    @field_validator("trusted_proxies", "cors_allow_origin", mode="before")
    @classmethod
    def _split_commas(cls, value: object) -> object:
        return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value

    @field_validator("trusted_proxies")
    @classmethod
    def _check_networks(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for network in value:
            ip_network(network, strict=False)
        return value

    @field_validator("api_key", "ssl_keyfile_password", mode="before")
    @classmethod
    def _strip_key(cls, value: object) -> object:
        # Files and secrets often end in a line break; no header can carry outer spaces.
        return value.strip() if isinstance(value, str) else value

    @field_validator("device")
    @classmethod
    def _check_device(cls, value: str) -> str:
        if not re.fullmatch(r"auto|cpu|mps|cuda(:[0-9]+)?", value):
            raise ValueError("must be auto, cpu, mps, cuda or, for one of several, cuda:0, cuda:1 and so on")
        return value

    @field_validator("workers")
    @classmethod
    def _check_workers(cls, value: int) -> int:
        if value > 1 and not hasattr(signal, "pthread_sigmask"):
            raise ValueError("must be 1, this system has no signals that could stop several processes in order")
        return value

    @field_validator("root_path")
    @classmethod
    def _check_root_path(cls, value: str) -> str:
        if value and (not value.startswith("/") or value.endswith("/")):
            raise ValueError("must be empty, or begin with a slash and not end with one, such as /bert")
        return value

    @field_validator("cors_allow_origin")
    @classmethod
    def _check_origins(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for origin in value:
            if origin != "*" and not _ORIGIN.fullmatch(origin):
                raise ValueError(f"{origin!r} must be * or scheme://host or scheme://host:port, without a path")
        return value

    @field_validator("otlp_endpoint")
    @classmethod
    def _check_endpoint(cls, value: str | None) -> str | None:
        if value is not None and not _COLLECTOR.fullmatch(value):
            raise ValueError("must be http://host:port or https://host:port, without a path or with /v1/traces")
        return value

    @model_validator(mode="after")
    def _check_contradictions(self) -> Settings:
        # Alone, a smaller number of concurrent requests is no contradiction: it bounds the default batch as well.
        if (
            "max_client_batch_size" in self.model_fields_set
            and self.max_client_batch_size > self.max_concurrent_requests
        ):
            raise ValueError(
                f"{shown_flag('max_client_batch_size')} is {self.max_client_batch_size} and "
                f"{shown_flag('max_concurrent_requests')} is {self.max_concurrent_requests}: "
                "a request of the largest size could never be accepted"
            )
        budget, queue = self.max_batch_tokens, self.max_queue_tokens
        if budget is not None and queue is not None and queue < budget:
            raise ValueError(
                f"{shown_flag('max_queue_tokens')} is {queue} and {shown_flag('max_batch_tokens')} is {budget}: "
                "the queue must hold a full pass"
            )
        if self.ssl_keyfile is not None and self.ssl_certfile is None:
            raise ValueError(
                f"{shown_flag('ssl_keyfile')} is {self.ssl_keyfile!r} and {shown_flag('ssl_certfile')} is not set: "
                "a key needs its certificate"
            )
        return self

    @property
    def asks_for_key(self) -> bool:
        """Whether requests must carry an API key."""
        return self.api_key is not None or self.api_key_file is not None

    @property
    def model_name(self) -> str:
        """The name of the model in answers."""
        return self.served_model_name or self.model_id


def shown_flag(name: str) -> str:
    """A setting as messages name it: its flag and its variable."""
    return name.upper() if name in ENVIRONMENT_ONLY else f"--{name.replace('_', '-')} ({name.upper()})"


def add_flags(parser: ArgumentParser) -> None:
    """Give `parser` one flag per setting, and `--no-…` for what is on by default; unused flags have the value None."""
    for name, field in Settings.model_fields.items():
        if name in ENVIRONMENT_ONLY:
            continue
        flags = [f"--{name.replace('_', '-')}"] + (["--hostname"] if name == "host" else [])
        help_text = f"{field.description}{_shown_default(field)} [{name.upper()}]"
        if field.annotation is bool:
            parser.add_argument(*flags, dest=name, help=help_text, nargs="?", const="true", metavar="true|false")
            if field.default is True:
                no_help = f"the same as {flags[0]} false"
                parser.add_argument(
                    f"--no-{flags[0][2:]}", dest=name, help=no_help, action="store_const", const="false"
                )
        else:
            parser.add_argument(*flags, dest=name, help=help_text, metavar=name.rsplit("_", 1)[-1].upper())


def _shown_default(field: FieldInfo) -> str:
    default = field.get_default()
    if field.is_required() or default in (PydanticUndefined, None, (), ""):
        return ""
    return f" (default: {str(default).lower() if isinstance(default, bool) else default})"


def load_settings(flags: Mapping[str, object]) -> Settings:
    """Settings from flags (None is unset), else the environment, else the defaults.

    Raises:
        SettingsError: with a line per fault.
    """
    given: dict[str, Any] = {name: value for name, value in flags.items() if value is not None}
    if "uds" in given and (address := given.keys() & {"host", "port"}):
        name = min(address)
        raise SettingsError(
            f"{shown_flag('uds')} is {given['uds']!r} and {shown_flag(name)} is {given[name]!r}: give only one of them"
        )
    try:
        return Settings(**given)
    except ValidationError as error:
        raise SettingsError("\n".join(_fault_line(fault) for fault in error.errors())) from None


def _fault_line(fault: ErrorDetails) -> str:
    empty = fault["type"] in ("string_too_short", "too_short")
    message = "must not be empty" if empty else fault["msg"].removeprefix("Value error, ")
    if not fault["loc"]:
        return message
    name = str(fault["loc"][0])
    value = "" if name in SECRETS else f" is {fault['input']!r}"
    return f"{shown_flag(name)}{value}: {message[0].lower()}{message[1:]}"
